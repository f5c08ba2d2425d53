//! Netlib's test programs of BLAS and CBLAS (Debian's package libblas-test) with the library
//! preloaded: transpositions, strides, layouts, and what XERBLA gets for wrong arguments.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use vtax_tuner::tuned::Tuned;
use vtax_tuner::{Parameters, Precision, Processor, Vector};

/// The sizes in the programs' input are too small for kernels; this is the largest size that they
/// accept.
const SIZES: (&[&str], &str) = (&["0 1 2 3 5 9 ", "1 2 3 5 7 9 "], "0 1 3 9 24 65 ");

/// Where Debian puts the programs, and the reference BLAS, which the programs of CBLAS need.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/usr/lib/{}-linux-gnu/blas", env::consts::ARCH));
    for (file, package) in [("xblat3d", "libblas-test"), ("libblas.so.3", "libblas3")] {
        if !folder.join(file).exists() {
            println!("skipped: no {file} of Debian's package {package} is installed");
            return None;
        }
    }
    Some(folder)
}

/// Cargo puts the library beside the tests.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libvtaxblas.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

fn input(folder: &Path, name: &str, home: &Path) -> io::Result<File> {
    let text = fs::read_to_string(folder.join(name))?;
    let (sizes, ours) = SIZES;
    let changed = sizes
        .iter()
        .fold(text.clone(), |text, sizes| text.replace(sizes, ours));
    assert_ne!(text, changed, "{name}");
    // Not ours; of LAPACK 3.12.1 (Debian 13) it fails for these sizes with the reference BLAS alone.
    let changed = ["cblas_dgemmtr", "cblas_sgemmtr"]
        .iter()
        .fold(changed, |text, name| {
            text.replace(&format!("{name} T"), &format!("{name} F"))
        });
    fs::write(home.join(name), changed)?;
    File::open(home.join(name))
}

/// Run a test program. It must use this library's routines, which report themselves at the first
/// call, and pass.
fn passes(program: &str, name: &str, summary: Option<&str>, routines: &[(&str, &[&str])]) {
    let _ = passes_with("", program, name, summary, routines);
}

/// Run it with a file of parameters; returns what was reported.
fn passes_with(
    parameters: &str,
    program: &str,
    name: &str,
    summary: Option<&str>,
    routines: &[(&str, &[&str])],
) -> Option<String> {
    let folder = folder()?;
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(folder.join(program))
        .current_dir(home.path())
        .stdin(input(&folder, name, home.path()).unwrap())
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", &folder)
        .env("VTAX_BLAS_SAY", "1")
        .env("VTAX_BLAS_THREADS", "1")
        .env("VTAX_BLAS", parameters)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = match summary {
        Some(file) => fs::read_to_string(home.path().join(file)).unwrap(),
        None => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    assert!(output.status.success(), "{}: {said}{text}", output.status);
    assert!(!text.contains("FAIL") && !text.contains("*****"), "{text}");
    for (routine, kernels) in routines {
        let passed = |what: &str| {
            text.lines().any(|line| {
                line.split_whitespace().next() == Some(routine)
                    && line.contains("PASSED")
                    && line.contains(what)
            })
        };
        assert!(passed("ERROR-EXITS"), "{routine}: {text}");
        assert!(passed("COMPUTATIONAL"), "{routine}: {text}");
        for kernel in *kernels {
            let ours = format!("vtax-blas: {kernel} (");
            assert!(
                said.lines().any(|line| line.starts_with(&ours)),
                "{kernel}: {said}"
            );
        }
    }
    Some(said.into_owned())
}

#[test]
fn fortran_double() {
    let level2: &[(&str, &[&str])] = &[("DGEMV", &["dgemv_n", "dgemv_t"]), ("DGER", &["dger"])];
    passes("xblat2d", "dblat2.in", Some("dblat2.out"), level2);
    passes(
        "xblat3d",
        "dblat3.in",
        Some("dblat3.out"),
        &[("DGEMM", &["dgemm"])],
    );
}

#[test]
fn fortran_single() {
    let level2: &[(&str, &[&str])] = &[("SGEMV", &["sgemv_n", "sgemv_t"]), ("SGER", &["sger"])];
    passes("xblat2s", "sblat2.in", Some("sblat2.out"), level2);
    passes(
        "xblat3s",
        "sblat3.in",
        Some("sblat3.out"),
        &[("SGEMM", &["sgemm"])],
    );
}

#[test]
fn c_double() {
    let level2: &[(&str, &[&str])] = &[
        ("cblas_dgemv", &["dgemv_n", "dgemv_t"]),
        ("cblas_dger", &["dger"]),
    ];
    passes("xdcblat2", "din2", None, level2);
    passes("xdcblat3", "din3", None, &[("cblas_dgemm", &["dgemm"])]);
}

#[test]
fn c_single() {
    let level2: &[(&str, &[&str])] = &[
        ("cblas_sgemv", &["sgemv_n", "sgemv_t"]),
        ("cblas_sger", &["sger"]),
    ];
    passes("xscblat2", "sin2", None, level2);
    passes("xscblat3", "sin3", None, &[("cblas_sgemm", &["sgemm"])]);
}

/// With portable code in the file, as on a machine without machine code.
#[test]
fn parameters_are_those_of_the_file_when_it_is_for_this_processor() {
    let here = Processor::this();
    let mut tuned = Tuned::new("1.0", here.clone());
    let portable = Parameters::model_for(Vector::Portable, &here, Precision::Double);
    tuned.double.gemm = Some(portable);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("blas.toml");
    let said = |tuned: &Tuned| {
        fs::write(&path, tuned.to_toml().unwrap()).unwrap();
        let routines: &[(&str, &[&str])] = &[("DGEMM", &["dgemm"])];
        let path = path.to_str().unwrap();
        passes_with(path, "xblat3d", "dblat3.in", Some("dblat3.out"), routines)
    };
    let Some(used) = said(&tuned) else { return };
    let used: Vec<&str> = used.lines().collect();
    let wanted = format!("vtax-blas: dgemm (threads: 1): tuned {portable:?}");
    assert_eq!(used, [wanted]);

    tuned.processor.model += 1;
    let refused = said(&tuned).unwrap();
    let lines: Vec<&str> = refused.lines().collect();
    assert_eq!(lines.len(), 2, "{refused}");
    assert!(
        lines[0].contains("blas.toml: it is for another processor: model"),
        "{refused}"
    );
    assert!(lines[1].contains("): model "), "{refused}");
}
