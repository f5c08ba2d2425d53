//! Compiles the eBPF programs with clang and lists their variables, so that Rust sets them by name.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=src/record/sources");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("sources.h"), includes()?)?;
    compile("place", &out)?;
    let compiled = compile("recorder", &out)?;
    fs::write(out.join("variables.rs"), variables(&compiled)?)?;
    Ok(())
}

/// An `#include` of each eBPF program of a source.
fn includes() -> Result<String, Box<dyn Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let mut programs = Vec::new();
    for folder in fs::read_dir(Path::new(&root).join("src/record/sources"))? {
        let folder = folder?.path();
        if folder.is_dir() {
            for file in fs::read_dir(folder)? {
                programs.push(file?.path());
            }
        }
    }
    programs.retain(|path| path.to_string_lossy().ends_with(".bpf.c"));
    programs.sort();
    let lines = programs
        .iter()
        .map(|path| format!("#include \"{}\"\n", path.display()));
    Ok(lines.collect())
}

/// Compile `bpf/NAME.bpf.c` in the folder of what is generated; return the object's path.
fn compile(name: &str, generated: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let source = format!("bpf/{name}.bpf.c");
    let target = generated.join(format!("{name}.bpf.o"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // libbpf-sys tells where libbpf's headers are.
    let include = env::var("DEP_BPF_INCLUDE")?;
    let architecture = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        other => return Err(format!("the eBPF programs are not written for {other}").into()),
    };
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .args(["-Wno-unused-function", architecture, "-I", &include])
        .arg("-I")
        .arg(generated)
        .args(["-c", &source, "-o"])
        .arg(&target)
        .status()
        .map_err(|error| format!("{clang}: {error}; install clang, or name one with CLANG=..."))?;
    if status.success() {
        Ok(target)
    } else {
        Err(format!("{clang} could not compile {source}").into())
    }
}

/// A table of the variables in `.rodata`: name, offset and size.
fn variables(compiled: &Path) -> Result<String, Box<dyn Error>> {
    let bytes = fs::read(compiled)?;
    let file = object::File::parse(&*bytes)?;
    let section = file.section_by_name(".rodata").ok_or("no .rodata")?.index();
    let mut text = String::from("&[\n");
    for symbol in file.symbols() {
        if symbol.section_index() == Some(section) && symbol.is_global() {
            let (name, at, size) = (symbol.name()?, symbol.address(), symbol.size());
            writeln!(text, "    ({name:?}, {at}, {size}),")?;
        }
    }
    text.push(']');
    Ok(text)
}
