//! The used part of QEMU's plugin interface, version 1 (`qemu-plugin.h` of QEMU 6.0 to 8.1), in
//! types that cannot be misused.
//!
//! All of it may be called only in a callback of QEMU, on the thread of the emulated CPU.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;

pub type Id = u64;
pub type InstructionCallback = unsafe extern "C" fn(c_uint, *mut c_void);
pub type MemoryCallback = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type BlockCallback = unsafe extern "C" fn(Id, *mut Block);

/// `qemu_info_t`, of a machine.
#[repr(C)]
pub struct Info {
    pub target: *const c_char,
    pub version: [c_int; 2],
    pub system_emulation: bool,
    pub vcpus: c_int,
    pub most_vcpus: c_int,
}

#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

/// `QEMU_PLUGIN_CB_NO_REGS`, `QEMU_PLUGIN_MEM_RW` and `QEMU_PLUGIN_INLINE_ADD_U64`.
const NO_REGISTERS: c_int = 0;
const LOADS_AND_STORES: c_int = 3;
const ADD: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: BlockCallback);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, at: usize) -> *mut Raw;
    fn qemu_plugin_register_vcpu_tb_exec_inline(
        block: *mut Block,
        operation: c_int,
        counter: *mut c_void,
        operand: u64,
    );
    fn qemu_plugin_insn_vaddr(instruction: *const Raw) -> u64;
    fn qemu_plugin_insn_data(instruction: *const Raw) -> *const c_void;
    fn qemu_plugin_insn_size(instruction: *const Raw) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Raw,
        callback: InstructionCallback,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Raw,
        operation: c_int,
        counter: *mut c_void,
        operand: u64,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Raw,
        callback: MemoryCallback,
        flags: c_int,
        kind: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

/// Have `callback` called for each block that is translated.
pub fn watch_blocks(id: Id, callback: BlockCallback) {
    // SAFETY: called while the plugin is installed, with its own identity.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, callback) };
}

/// Did the access behind a memory callback store?
pub fn is_store(info: u32) -> bool {
    // SAFETY: the number belongs to the running callback.
    unsafe { qemu_plugin_mem_is_store(info) }
}

/// A counter that translated code increments.
fn counter(counter: &'static AtomicU64) -> *mut c_void {
    counter.as_ptr().cast()
}

/// Adds all instructions of a block to `all` each time before the block is executed.
///
/// # Safety
/// `block` is the block of the running translation callback.
pub unsafe fn count_block(block: *mut Block, all: &'static AtomicU64) {
    // SAFETY: as the caller promises; the counter is never freed.
    unsafe {
        let number = qemu_plugin_tb_n_insns(block) as u64;
        qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, counter(all), number);
    }
}

/// An instruction that is being translated.
pub struct Instruction(*mut Raw);

impl Instruction {
    /// The instructions of a block.
    ///
    /// # Safety
    /// `block` is the block of the running translation callback, and the instructions are used only
    /// in it.
    pub unsafe fn of(block: *mut Block) -> impl Iterator<Item = Self> {
        // SAFETY: as the caller promises.
        let count = unsafe { qemu_plugin_tb_n_insns(block) };
        // SAFETY: the index is below the count.
        (0..count).map(move |at| Self(unsafe { qemu_plugin_tb_get_insn(block, at) }))
    }

    pub fn address(&self) -> u64 {
        // SAFETY: it is alive during the translation.
        unsafe { qemu_plugin_insn_vaddr(self.0) }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it is alive during the translation, and QEMU keeps its bytes with it.
        unsafe {
            let data = qemu_plugin_insn_data(self.0).cast::<u8>();
            std::slice::from_raw_parts(data, qemu_plugin_insn_size(self.0))
        }
    }

    /// Increments `own` each time before the instruction is executed.
    pub fn count(&self, own: &'static AtomicU64) {
        // SAFETY: it is alive; the counter is never freed.
        unsafe { qemu_plugin_register_vcpu_insn_exec_inline(self.0, ADD, counter(own), 1) };
    }

    /// Calls back each time before the instruction is executed.
    pub fn before(&self, callback: InstructionCallback) {
        let none = std::ptr::null_mut();
        // SAFETY: it is alive; the callback is one of this plugin's that takes no data.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.0, callback, NO_REGISTERS, none) };
    }

    /// Calls back after each load or store that the instruction makes.
    pub fn memory(&self, callback: MemoryCallback) {
        let (flags, none) = (NO_REGISTERS, std::ptr::null_mut());
        // SAFETY: it is alive; the callback is one of this plugin's that takes no data.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(self.0, callback, flags, LOADS_AND_STORES, none);
        }
    }
}
