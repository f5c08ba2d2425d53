//! The callbacks, and the one state that they share.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use qemu_plugin_sys as sys;
use vtax_model::model::address::Gva;
use vtax_model::step::Operation;
use vtax_sys::trace_mark::Mark;

use crate::api_unsafe::{Block, Counter, Cpu, Instruction, access_bytes};
use crate::consumer::{self, Writing};
use crate::decode::{Special, special};
use crate::fetches::Fetches;
use crate::layout::{FRAME_SHIFT, is_kernel, physical};
use crate::options::TraceOptions;
use crate::recorder::Recorder;
use crate::sampled::Sampled;
use crate::summary::{self, Counts};
use crate::tables::Tables;

/// The version of the interface that this code uses; QEMU compares it with its own.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

const PAGE: u64 = 1 << FRAME_SHIFT;
/// The largest single access, in bytes.
const LARGEST_ACCESS: u64 = 64;
/// The bit of CR3 that keeps the TLB.
const PRESERVE: u64 = 1 << 63;
/// The bits of CR3 with the root's address.
const ROOT: u64 = 0x000f_ffff_ffff_f000;

struct State {
    id: sys::qemu_plugin_id_t,
    options: TraceOptions,
    instructions: Counter,
    /// The page in which the guest executes, if nothing happened since it was told.
    page: Counter,
    fetches: Fetches,
    sampled: Option<Sampled>,
    cpu: Option<Cpu>,
    /// Data of callbacks, each kept once: translated code points to them.
    specials: HashMap<Special, Box<Special>>,
    armed: bool,
    recorder: Option<Recorder>,
    writing: Option<Writing>,
    tables: Tables,
    counts: Counts,
}

/// The state, used by one thread at a time: callbacks of the only CPU come from its thread, and the
/// callbacks of the installation and the exit come when that thread does not run.
struct Shared(UnsafeCell<Option<State>>);

// SAFETY: see above.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(None));

#[inline]
fn state() -> Option<&'static mut State> {
    // SAFETY: callbacks do not call each other, and each takes the state once.
    unsafe { (*STATE.0.get()).as_mut() }
}

/// Called when QEMU has loaded the plugin.
///
/// # Safety
/// QEMU calls it, once, with `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: sys::qemu_plugin_id_t,
    info: *const sys::qemu_info_t,
    count: c_int,
    words: *mut *mut c_char,
) -> c_int {
    // SAFETY: the structure is QEMU's and stays valid during the call.
    let one_cpu =
        unsafe { (*info).system_emulation && (*info).__bindgen_anon_1.system.max_vcpus == 1 };
    let read: Option<Vec<&str>> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: there are `count` strings.
        .map(|at| unsafe { CStr::from_ptr(*words.add(at)) }.to_str().ok())
        .collect();
    let parsed = if one_cpu {
        TraceOptions::parse(read.unwrap_or_default())
    } else {
        Err("only a machine with one CPU can be traced".into())
    };
    let options = match parsed {
        Ok(options) => options,
        Err(reason) => {
            eprintln!("vtax-trace: {reason}");
            return 1;
        }
    };
    let fresh = State {
        id,
        instructions: Counter::new(),
        page: Counter::new(),
        fetches: Fetches::new(options.instruction_tlb),
        sampled: options.sampling.map(Sampled::new),
        cpu: None,
        specials: HashMap::new(),
        armed: false,
        recorder: None,
        writing: None,
        tables: Tables::new(options.memory_bytes >> FRAME_SHIFT),
        counts: Counts::default(),
        options,
    };
    // SAFETY: nothing else runs yet.
    unsafe { *STATE.0.get() = Some(fresh) };
    // SAFETY: called while the plugin is installed, with callbacks of the right types.
    unsafe {
        sys::qemu_plugin_register_vcpu_init_cb(id, Some(on_cpu));
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_quiet_block));
    }
    0
}

unsafe extern "C" fn on_cpu(_: sys::qemu_plugin_id_t, _: c_uint) {
    let Some(state) = state() else { return };
    match Cpu::new() {
        Ok(cpu) => state.cpu = Some(cpu),
        Err(reason) => eprintln!("vtax-trace: {reason}"),
    }
}

/// Before the trace only marks are watched, so that the guest boots at its usual speed.
unsafe extern "C" fn on_quiet_block(_: sys::qemu_plugin_id_t, block: *mut sys::qemu_plugin_tb) {
    let Some(state) = state() else { return };
    // SAFETY: `block` is the block of this callback.
    for instruction in unsafe { Block::new(block) }.instructions() {
        if let Some(Special::Cpuid) = find_special(&instruction) {
            watch(state, &instruction, Special::Cpuid);
        }
    }
}

unsafe extern "C" fn on_block(_: sys::qemu_plugin_id_t, block: *mut sys::qemu_plugin_tb) {
    let Some(state) = state() else { return };
    // SAFETY: `block` is the block of this callback.
    let block = unsafe { Block::new(block) };
    let recorded = state.is_recorded();
    let mut told = None;
    if let Some(sampled) = &state.sampled {
        block.at_limit(sampled.work, sampled.length, Some(on_interval));
        sampled.count(&block, state.instructions);
    }
    for instruction in block.instructions() {
        if state.sampled.is_none() {
            instruction.count(state.instructions);
        }
        let kernel = is_kernel(instruction.address());
        let page = instruction.address() >> FRAME_SHIFT;
        if told.replace(page) != Some(page) && !(kernel && state.options.user_only) {
            block.unless(state.page, page, Some(on_page));
        }
        match (kernel, recorded && !(kernel && state.options.user_only)) {
            (false, true) => {
                instruction.memory(Some(on_load), false);
                instruction.memory(Some(on_store), true);
            }
            (true, true) => {
                instruction.memory(Some(on_load), false);
                instruction.memory(Some(on_kernel_store), true);
            }
            (true, false) => instruction.memory(Some(on_unrecorded_store), true),
            (false, false) => {}
        }
        if let Some(found) = find_special(&instruction) {
            watch(state, &instruction, found);
        }
    }
}

fn find_special(instruction: &Instruction) -> Option<Special> {
    special(instruction.address(), instruction.bytes(&mut [0; 16]))
}

fn watch(state: &mut State, instruction: &Instruction, found: Special) {
    let data = state
        .specials
        .entry(found)
        .or_insert_with(|| Box::new(found));
    let data = (&raw mut **data).cast::<c_void>();
    instruction.before(Some(on_special), data);
}

unsafe extern "C" fn on_interval(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        let recorded = state.is_recorded();
        state.end_interval();
        if state.is_recorded() != recorded {
            // All code is translated anew.
            // SAFETY: in a callback; the reset is carried out when the CPU has left its block.
            unsafe { sys::qemu_plugin_reset(state.id, Some(on_reset)) };
        }
    }
}

unsafe extern "C" fn on_special(_: c_uint, data: *mut c_void) {
    let Some(state) = state() else { return };
    // SAFETY: `watch` passed the pointer, and its target is never freed.
    let found = unsafe { *data.cast::<Special>() };
    if found == Special::Cpuid {
        state.mark();
    } else if state.recorder.is_some() {
        state.follow(found);
    }
}

unsafe extern "C" fn on_page(_: c_uint, page: *mut c_void) {
    let Some(state) = state() else { return };
    if state.recorder.is_some() {
        state.fetch(page.addr() as u64);
    }
}

unsafe extern "C" fn on_load(
    _: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    _: *mut c_void,
) {
    record(info, address, false);
}

unsafe extern "C" fn on_store(
    _: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    _: *mut c_void,
) {
    record(info, address, true);
}

unsafe extern "C" fn on_kernel_store(
    _: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    _: *mut c_void,
) {
    record(info, address, true);
    look_at_store(info, address);
}

unsafe extern "C" fn on_unrecorded_store(
    _: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    _: *mut c_void,
) {
    look_at_store(info, address);
}

#[inline]
fn record(info: sys::qemu_plugin_meminfo_t, address: u64, write: bool) {
    let Some(state) = state() else { return };
    let Some(recorder) = &mut state.recorder else {
        return;
    };
    let mut full = recorder.reference(address, write);
    if address % PAGE > PAGE - LARGEST_ACCESS && address % PAGE + access_bytes(info) > PAGE {
        // An access across a page boundary is two references.
        full = recorder.reference((address | (PAGE - 1)).wrapping_add(1), write);
    }
    if full {
        let counted = state.counted();
        if let Some(recorder) = &mut state.recorder {
            recorder.cut(counted);
        }
    }
}

#[inline]
fn look_at_store(info: sys::qemu_plugin_meminfo_t, address: u64) {
    let Some(physical) = physical(address) else {
        return;
    };
    let Some(state) = state() else { return };
    if state.tables.contains(physical >> FRAME_SHIFT) {
        state.table_store(physical, access_bytes(info));
    }
}

impl State {
    /// Instructions so far.
    fn counted(&self) -> u64 {
        let before = self.sampled.as_ref().map_or(0, |sampled| sampled.before);
        before + self.instructions.get()
    }

    /// Are the references of the current interval recorded?
    fn is_recorded(&self) -> bool {
        let sampled = self.sampled.as_ref();
        sampled.is_none_or(|sampled| sampled.schedule.recorded())
    }

    /// Ends an interval of a sampled run.
    fn end_interval(&mut self) {
        let counted = self.counted();
        let Some(sampled) = &mut self.sampled else {
            return;
        };
        self.instructions.take();
        sampled.before = counted;
        let interval = sampled.ended();
        if let Some(recorder) = &mut self.recorder {
            sampled.schedule.advance();
            recorder.interval(interval, counted);
        }
    }

    /// A CPUID is about to be executed.
    fn mark(&mut self) {
        let Some(cpu) = &mut self.cpu else { return };
        // CPUID reads only EAX.
        let leaf = u32::try_from(cpu.general(0) & u64::from(u32::MAX)).unwrap_or(0);
        match Mark::of(leaf) {
            Some(Mark::Arm) if !self.armed => {
                self.armed = true;
                // SAFETY: in a callback; the reset is carried out when the CPU has left its block.
                unsafe { sys::qemu_plugin_reset(self.id, Some(on_reset)) };
            }
            Some(Mark::Begin) if self.armed && self.writing.is_none() => {
                if let Err(reason) = self.begin() {
                    // No summary is written then, which shows that there is no trace.
                    (self.recorder, self.writing) = (None, None);
                    eprintln!("vtax-trace: {reason}");
                }
            }
            Some(Mark::End) => self.end(),
            Some(Mark::Phase) => {
                let counted = self.counted();
                if let Some(recorder) = &mut self.recorder {
                    recorder.next_phase(counted);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        self.end_interval();
        let counted = self.counted();
        let Some(cpu) = &mut self.cpu else {
            return Err("QEMU shows no registers".into());
        };
        let (recorder, guest) = Recorder::new(counted);
        self.writing = Some(consumer::start(&self.options, guest)?);
        self.recorder = Some(recorder);
        let root = cpu.cr3();
        self.load_cr3(root & !PRESERVE);
        if self.tables.len() == 0 {
            return Err("the guest's page tables are not where they should be: \
                        it needs nokaslr no5lvl nopti"
                .into());
        }
        Ok(())
    }

    /// Ends the trace; the file is complete afterwards.
    fn end(&mut self) {
        self.end_interval();
        let counted = self.counted();
        let totals = self
            .recorder
            .take()
            .map(|recorder| recorder.finish(counted));
        let Some(writing) = self.writing.take() else {
            return;
        };
        let failed = match writing.join() {
            Ok(written) => written.err(),
            Err(_) => Some("the trace's thread panicked".to_owned()),
        };
        let path = &self.options.summary;
        let misses = self.fetches.instruction_tlb_misses();
        let written = summary::write(path, totals, self.counts, misses, failed.as_deref());
        if let Some(reason) = failed.or(written.err()) {
            eprintln!("vtax-trace: {reason}");
        }
    }

    fn follow(&mut self, found: Special) {
        let Some(cpu) = &mut self.cpu else { return };
        match found {
            Special::LoadCr3(source) => {
                let value = cpu.general(source);
                self.load_cr3(value);
            }
            Special::LoadCr4 => self.flush(),
            Special::ReadCr2 => {
                let address = Gva(cpu.cr2());
                self.tell(Operation::Fault { address });
            }
            Special::Invlpg(operand) => {
                let address = Gva(operand.address(|number| cpu.general(number)));
                self.tell(Operation::Invlpg { address });
            }
            Special::Invpcid(kind, operand) => {
                let kind = cpu.general(kind);
                let descriptor = operand.address(|number| cpu.general(number));
                let bytes = cpu.read(descriptor + 8, 8).and_then(<[u8]>::first_chunk);
                let address = bytes.map(|bytes| Gva(u64::from_le_bytes(*bytes)));
                match (kind, address) {
                    (0, Some(address)) => self.tell(Operation::Invlpg { address }),
                    _ => self.flush(),
                }
            }
            Special::Cpuid => {}
        }
    }

    /// The guest executes in a page, other than that of the block before.
    fn fetch(&mut self, page: u64) {
        let counted = self.counted();
        if self.fetches.execute(page)
            && let Some(recorder) = &mut self.recorder
        {
            let address = Gva(page << FRAME_SHIFT);
            recorder.operation(Operation::Fetch { address }, counted);
        }
        self.page.set(page);
    }

    /// What was told of pages may not hold any more.
    fn forget_pages(&mut self) {
        self.fetches.forget();
        // No page: addresses are 64 bits long.
        self.page.set(u64::MAX);
    }

    fn tell(&mut self, operation: Operation) {
        self.forget_pages();
        self.fetches.told(&operation);
        self.counts.count(&operation);
        let counted = self.counted();
        if let Some(recorder) = &mut self.recorder {
            recorder.operation(operation, counted);
        }
    }

    fn load_cr3(&mut self, value: u64) {
        let (root, preserve) = ((value & ROOT) >> FRAME_SHIFT, value & PRESERVE != 0);
        self.with_tables(|tables, cpu, tell| tables.load(root, preserve, cpu, tell));
    }

    fn flush(&mut self) {
        self.with_tables(|tables, _, tell| tables.flush(tell));
    }

    /// The kernel stored `bytes` bytes to a page table.
    #[cold]
    fn table_store(&mut self, physical: u64, bytes: u64) {
        let frame = physical >> FRAME_SHIFT;
        let (first, last) = (physical % PAGE, physical % PAGE + bytes - 1);
        for index in first / 8..=last.min(PAGE - 1) / 8 {
            let index = usize::try_from(index).unwrap_or(0);
            self.with_tables(|tables, cpu, tell| tables.store(frame, index, cpu, tell));
        }
    }

    fn with_tables(&mut self, act: impl FnOnce(&mut Tables, &mut Cpu, &mut dyn FnMut(Operation))) {
        self.forget_pages();
        // No instruction is executed meanwhile.
        let counted = self.counted();
        let (Some(cpu), Some(recorder)) = (&mut self.cpu, &mut self.recorder) else {
            return;
        };
        let (counts, fetches) = (&mut self.counts, &mut self.fetches);
        let mut tell = |operation: Operation| {
            fetches.told(&operation);
            counts.count(&operation);
            recorder.operation(operation, counted);
        };
        act(&mut self.tables, cpu, &mut tell);
    }
}

/// Called when all callbacks and all translated code are gone.
unsafe extern "C" fn on_reset(id: sys::qemu_plugin_id_t) {
    // SAFETY: in a callback, with callbacks of the right types.
    unsafe {
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_block));
        sys::qemu_plugin_register_atexit_cb(id, Some(on_exit), std::ptr::null_mut());
    }
}

/// Called when QEMU ends, for instance because it was asked to: what was traced is kept.
unsafe extern "C" fn on_exit(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    if let Some(state) = state() {
        state.end();
    }
}
