//! Compiles the eBPF programs with clang.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "bpf/place.bpf.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let target = PathBuf::from(env::var("OUT_DIR")?).join("place.bpf.o");
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
        .args([architecture, "-I", &include, "-c", SOURCE, "-o"])
        .arg(&target)
        .status()
        .map_err(|error| format!("{clang}: {error}; install clang, or name one with CLANG=..."))?;
    if !status.success() {
        return Err(format!("{clang} could not compile {SOURCE}").into());
    }
    Ok(())
}
