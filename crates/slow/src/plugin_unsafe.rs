//! The used part of QEMU's plugin interface, version 1 (`qemu-plugin.h` of QEMU 6.0 to 8.1), and
//! the callbacks.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::core::Core;

type Id = u64;

/// `qemu_info_t`, of a machine.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    version: [c_int; 2],
    system_emulation: bool,
    vcpus: c_int,
    most_vcpus: c_int,
}

#[repr(C)]
struct Block {
    _opaque: [u8; 0],
}

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: unsafe extern "C" fn(Id, *mut Block),
    );
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
}

/// The version of the interface that this code uses; QEMU compares it with its own.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

static CORES: OnceLock<Box<[Core]>> = OnceLock::new();

/// Called when QEMU has loaded the plugin, with one word: `speeds=FOLDER`.
///
/// # Safety
/// QEMU calls it, once, with `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    words: *mut *mut c_char,
) -> c_int {
    // SAFETY: the structure is QEMU's and stays valid during the call.
    let (machine, cpus) = unsafe { ((*info).system_emulation, (*info).most_vcpus) };
    let cpus = usize::try_from(cpus).unwrap_or(0);
    // SAFETY: there are `count` strings.
    let word = (count == 1).then(|| unsafe { CStr::from_ptr(*words) }.to_str().unwrap_or(""));
    let begun = match word.and_then(|word| word.strip_prefix("speeds=")) {
        Some(folder) if machine => begin(Path::new(folder), cpus),
        _ => Err("it takes speeds=FOLDER, in a machine".into()),
    };
    if let Err(reason) = begun {
        eprintln!("vtax-slow: {reason}");
        return 1;
    }
    // SAFETY: the plugin is being installed, and this is its own identity.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, on_block) };
    0
}

fn begin(folder: &Path, cpus: usize) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    fs::create_dir(folder).map_err(failed)?;
    let cores: Result<_, _> = (0..cpus).map(|cpu| Core::new(folder, cpu)).collect();
    let _ = CORES.set(cores.map_err(failed)?);
    Ok(())
}

unsafe extern "C" fn on_block(_: Id, block: *mut Block) {
    let none = std::ptr::null_mut();
    // SAFETY: `block` is the block of this callback, and the registered one takes no data.
    unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, on_execution, NO_REGISTERS, none) };
}

extern "C" fn on_execution(cpu: c_uint, _: *mut c_void) {
    if let Some(core) = CORES.get().and_then(|cores| cores.get(cpu as usize)) {
        core.block();
    }
}
