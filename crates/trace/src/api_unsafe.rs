//! The used part of QEMU's plugin interface, version 4, in types that cannot be misused.
//!
//! All of it may be called only in a callback of QEMU, on the thread of the guest's CPU.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_uint, c_void};
use std::ptr::NonNull;

use qemu_plugin_sys as sys;

use crate::layout::direct_address;
use crate::tables::{Contents, ENTRIES, GuestMemory};

unsafe extern "C" {
    // A function of glib, with which QEMU is linked.
    fn g_byte_array_new() -> *mut sys::GByteArray;
    fn g_byte_array_set_size(array: *mut sys::GByteArray, length: c_uint) -> *mut sys::GByteArray;
}

/// General registers in the order of their numbers in instructions.
const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

type Handle = NonNull<sys::qemu_plugin_register>;

/// A buffer of glib's.
struct Buffer(NonNull<sys::GByteArray>);

impl Buffer {
    fn new() -> Option<Self> {
        // SAFETY: the call has no precondition.
        NonNull::new(unsafe { g_byte_array_new() }).map(Self)
    }

    fn clear(&self) {
        // SAFETY: the array is alive as long as this.
        unsafe { g_byte_array_set_size(self.0.as_ptr(), 0) };
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the array is alive, and nothing changes it while it is borrowed.
        let array = unsafe { self.0.as_ref() };
        if array.data.is_null() {
            return &[];
        }
        // SAFETY: glib keeps `len` bytes at `data`.
        unsafe { std::slice::from_raw_parts(array.data, array.len as usize) }
    }
}

/// Registers and memory of the guest's CPU.
pub struct Cpu {
    general: Vec<Handle>,
    cr2: Handle,
    cr3: Handle,
    buffer: Buffer,
}

impl Cpu {
    /// The CPU whose initialization callback is running. The error names what QEMU does not have.
    pub fn new() -> Result<Self, String> {
        // SAFETY: called at the initialization of a CPU. The call returns an array of descriptors.
        let array = unsafe { sys::qemu_plugin_get_registers().as_ref() };
        let array = array.ok_or("QEMU shows no registers")?;
        // glib allocates for any type.
        #[expect(clippy::cast_ptr_alignment)]
        let first = array.data.cast::<sys::qemu_plugin_reg_descriptor>();
        // SAFETY: by the interface, the array holds `len` of them.
        let found = unsafe { std::slice::from_raw_parts(first, array.len as usize) };
        let handle = |wanted: &str| {
            let named = found.iter().find(|each| {
                // SAFETY: names are strings of QEMU that are never freed.
                !each.name.is_null()
                    && unsafe { CStr::from_ptr(each.name) }.to_bytes() == wanted.as_bytes()
            });
            named
                .and_then(|each| NonNull::new(each.handle))
                .ok_or_else(|| format!("QEMU shows no register {wanted}"))
        };
        Ok(Self {
            general: GENERAL.into_iter().map(handle).collect::<Result<_, _>>()?,
            cr2: handle("cr2")?,
            cr3: handle("cr3")?,
            buffer: Buffer::new().ok_or("glib has no memory")?,
        })
    }

    /// A general register, by its number.
    pub fn general(&self, number: u8) -> u64 {
        let handle = self.general.get(usize::from(number)).copied();
        handle.map_or(0, |handle| self.register(handle))
    }

    /// The address of the last page fault.
    pub fn cr2(&self) -> u64 {
        self.register(self.cr2)
    }

    /// The root of the page tables.
    pub fn cr3(&self) -> u64 {
        self.register(self.cr3)
    }

    /// Read `length` bytes at a guest virtual address.
    pub fn read(&mut self, address: u64, length: usize) -> Option<&[u8]> {
        self.buffer.clear();
        let buffer = self.buffer.0.as_ptr();
        // SAFETY: in a callback of the CPU; the buffer is glib's and grows as needed.
        let read = unsafe { sys::qemu_plugin_read_memory_vaddr(address, buffer, length) };
        Some(self.buffer.bytes()).filter(|bytes| read && bytes.len() == length)
    }

    fn register(&self, handle: Handle) -> u64 {
        self.buffer.clear();
        // SAFETY: in a callback that was registered to read registers; the handle is QEMU's.
        unsafe { sys::qemu_plugin_read_register(handle.as_ptr(), self.buffer.0.as_ptr()) };
        let bytes = self.buffer.bytes();
        bytes
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl GuestMemory for Cpu {
    fn table(&mut self, frame: u64) -> Option<Contents> {
        let bytes = self.read(direct_address(frame), 8 * ENTRIES)?;
        let mut contents = Box::new([0; ENTRIES]);
        for (entry, bytes) in contents.iter_mut().zip(bytes.as_chunks().0) {
            *entry = u64::from_le_bytes(*bytes);
        }
        Some(contents)
    }

    fn entry(&mut self, frame: u64, index: usize) -> Option<u64> {
        let bytes = self.read(direct_address(frame) + 8 * index as u64, 8)?;
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// A number that translated code increments or compares.
#[derive(Clone, Copy)]
pub struct Counter(sys::qemu_plugin_u64);

impl Counter {
    pub fn new() -> Self {
        // SAFETY: called while the plugin is installed.
        let score = unsafe { sys::qemu_plugin_scoreboard_new(size_of::<u64>()) };
        Self(sys::qemu_plugin_u64 { score, offset: 0 })
    }

    /// Sets its value on the only CPU.
    pub fn set(self, value: u64) {
        // SAFETY: the scoreboard is never freed.
        unsafe { sys::qemu_plugin_u64_set(self.0, 0, value) };
    }

    /// `N` counters.
    pub fn vector<const N: usize>() -> [Self; N] {
        // SAFETY: called while the plugin is installed.
        let score = unsafe { sys::qemu_plugin_scoreboard_new(size_of::<[u64; N]>()) };
        std::array::from_fn(|at| {
            Self(sys::qemu_plugin_u64 {
                score,
                offset: at * size_of::<u64>(),
            })
        })
    }

    /// Its value on the only CPU.
    pub fn get(self) -> u64 {
        // SAFETY: the scoreboard is never freed.
        unsafe { sys::qemu_plugin_u64_get(self.0, 0) }
    }

    /// Take its value on the only CPU and set it to 0.
    pub fn take(self) -> u64 {
        let value = self.get();
        // SAFETY: the scoreboard is never freed.
        unsafe { sys::qemu_plugin_u64_set(self.0, 0, 0) };
        value
    }
}

/// A block of instructions that is being translated.
pub struct Block(*mut sys::qemu_plugin_tb);

impl Block {
    /// # Safety
    /// `block` is the block of the running translation callback, and this is used only in it.
    pub unsafe fn new(block: *mut sys::qemu_plugin_tb) -> Self {
        Self(block)
    }

    pub fn address(&self) -> u64 {
        // SAFETY: it is alive during the translation.
        unsafe { sys::qemu_plugin_tb_vaddr(self.0) }
    }

    /// The number of its instructions.
    pub fn length(&self) -> u64 {
        // SAFETY: it is alive during the translation.
        unsafe { sys::qemu_plugin_tb_n_insns(self.0) as u64 }
    }

    /// The instructions of the block.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction> {
        // SAFETY: it is alive during the translation.
        let count = unsafe { sys::qemu_plugin_tb_n_insns(self.0) };
        // SAFETY: the index is below the count.
        (0..count).map(|at| Instruction(unsafe { sys::qemu_plugin_tb_get_insn(self.0, at) }))
    }

    /// Adds to the counter each time before the block is executed.
    pub fn count(&self, counter: Counter, amount: u64) {
        let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
        // SAFETY: it is alive; the counter is never freed.
        unsafe {
            sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self.0, add, counter.0, amount);
        }
    }

    /// Calls back before the block is executed, unless the number is `value`; the callback gets the
    /// value.
    pub fn unless(&self, number: Counter, value: u64, callback: sys::qemu_plugin_vcpu_udata_cb_t) {
        let other = sys::qemu_plugin_cond::QEMU_PLUGIN_COND_NE;
        let data = std::ptr::without_provenance_mut(usize::try_from(value).unwrap_or(0));
        self.where_number(number, other, value, callback, data);
    }

    /// Calls back before the block is executed when the counter is at least `limit`.
    pub fn at_limit(
        &self,
        counter: Counter,
        limit: u64,
        callback: sys::qemu_plugin_vcpu_udata_cb_t,
    ) {
        let least = sys::qemu_plugin_cond::QEMU_PLUGIN_COND_GE;
        self.where_number(counter, least, limit, callback, std::ptr::null_mut());
    }

    fn where_number(
        &self,
        number: Counter,
        compares: sys::qemu_plugin_cond,
        to: u64,
        callback: sys::qemu_plugin_vcpu_udata_cb_t,
        data: *mut c_void,
    ) {
        let flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;
        // SAFETY: it is alive; the counter is never freed, and the callback is one of this plugin's
        // for such data.
        unsafe {
            sys::qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.0, callback, flags, compares, number.0, to, data,
            );
        }
    }
}

/// An instruction that is being translated.
pub struct Instruction(*mut sys::qemu_plugin_insn);

impl Instruction {
    pub fn address(&self) -> u64 {
        // SAFETY: it is alive during the translation.
        unsafe { sys::qemu_plugin_insn_vaddr(self.0) }
    }

    /// Its bytes, copied into `space`.
    pub fn bytes<'a>(&self, space: &'a mut [u8; 16]) -> &'a [u8] {
        let pointer = space.as_mut_ptr().cast();
        // SAFETY: it is alive, and the call writes at most the given length.
        let length = unsafe { sys::qemu_plugin_insn_data(self.0, pointer, space.len()) };
        &space[..length.min(space.len())]
    }

    /// Increments the counter each time before the instruction is executed.
    pub fn count(&self, counter: Counter) {
        let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
        // SAFETY: it is alive; the counter is never freed.
        unsafe {
            sys::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(self.0, add, counter.0, 1);
        }
    }

    /// Increments the counter at each load, or each store, that the instruction makes.
    pub fn count_memory(&self, counter: Counter, stores: bool) {
        let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
        // SAFETY: it is alive; the counter is never freed.
        unsafe {
            sys::qemu_plugin_register_vcpu_mem_inline_per_vcpu(
                self.0,
                direction(stores),
                add,
                counter.0,
                1,
            );
        }
    }

    /// Calls back each time before the instruction is executed; the callback can read registers.
    pub fn before(&self, callback: sys::qemu_plugin_vcpu_udata_cb_t, data: *mut c_void) {
        let flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_R_REGS;
        // SAFETY: it is alive; the callback is one of this plugin's for such data.
        unsafe { sys::qemu_plugin_register_vcpu_insn_exec_cb(self.0, callback, flags, data) };
    }

    /// Calls back after each load, or each store, that the instruction makes.
    pub fn memory(&self, callback: sys::qemu_plugin_vcpu_mem_cb_t, stores: bool) {
        let flags = sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;
        let kind = direction(stores);
        let data = std::ptr::null_mut();
        // SAFETY: it is alive; the callback is one of this plugin's that takes no data.
        unsafe { sys::qemu_plugin_register_vcpu_mem_cb(self.0, callback, flags, kind, data) };
    }
}

fn direction(stores: bool) -> sys::qemu_plugin_mem_rw {
    if stores {
        sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_W
    } else {
        sys::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_R
    }
}

/// The number of bytes of a load or a store.
pub fn access_bytes(info: sys::qemu_plugin_meminfo_t) -> u64 {
    // SAFETY: the number belongs to the running callback.
    1 << unsafe { sys::qemu_plugin_mem_size_shift(info) }
}
