//! The callbacks, and the one state that they share.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api_unsafe::{Block, Id, Info, Instruction, count_block, is_store, watch_blocks};
use crate::decode::{Special, special};
use crate::options::Options;
use crate::page::{self, VALUES};
use crate::walks::Walks;
use crate::world::{Cause, World};

/// The version of the interface that this code uses; QEMU compares it with its own.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Instructions of the guest, one by one.
static GUEST: AtomicU64 = AtomicU64::new(0);
/// Instructions of the host, by block: one that is cut off by a fault counts whole.
static HOST: AtomicU64 = AtomicU64::new(0);

struct State {
    world: World,
    walks: Walks,
    exit_cycles: u32,
    /// Where the host goes on after a VMRUN.
    behind_vmrun: BTreeSet<u64>,
    /// Where the guest goes on after an instruction that may make it leave.
    behind_cause: BTreeSet<u64>,
}

/// The state, used by one thread at a time: callbacks of the only CPU come from its thread, and the
/// installation comes before that thread.
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
    id: Id,
    info: *const Info,
    count: c_int,
    words: *mut *mut c_char,
) -> c_int {
    // SAFETY: the structure is QEMU's and stays valid during the call.
    let one_cpu = unsafe { (*info).system_emulation && (*info).most_vcpus == 1 };
    let read: Option<Vec<&str>> = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: there are `count` strings.
        .map(|at| unsafe { CStr::from_ptr(*words.add(at)) }.to_str().ok())
        .collect();
    let begun = if one_cpu {
        begin(&read.unwrap_or_default())
    } else {
        Err("only a host with one CPU can be counted".into())
    };
    match begun {
        Ok(fresh) => {
            // SAFETY: nothing else runs yet.
            unsafe { *STATE.0.get() = Some(fresh) };
            watch_blocks(id, on_block);
            0
        }
        Err(reason) => {
            eprintln!("vtax-nested: {reason}");
            1
        }
    }
}

fn begin(words: &[&str]) -> Result<State, String> {
    let options = Options::parse(words.iter().copied())?;
    let walks = Walks::new(&options.machine).map_err(|error| error.to_string())?;
    page::start(&options.page)?;
    Ok(State {
        world: World::default(),
        walks,
        exit_cycles: options.machine.costs.exit,
        behind_vmrun: BTreeSet::new(),
        behind_cause: BTreeSet::new(),
    })
}

/// QEMU translates a block just before it is executed, and blocks of a guest apart from the host's.
unsafe extern "C" fn on_block(_: Id, block: *mut Block) {
    let Some(state) = state() else { return };
    // SAFETY: `block` is the block of this callback.
    let instructions: Vec<_> = unsafe { Instruction::of(block) }.collect();
    // What is behind VMRUN is translated before its callback has told of the exit.
    let first = instructions.first().map(Instruction::address);
    let left = first.is_some_and(|address| state.behind_vmrun.contains(&address));
    let inside = state.world.is_guest() && !left;
    if !inside {
        // SAFETY: `block` is the block of this callback.
        unsafe { count_block(block, &HOST) };
    }
    for instruction in instructions {
        let found = special(instruction.bytes());
        let behind = instruction.address() + instruction.bytes().len() as u64;
        if inside {
            state.watch_guest(&instruction, found, behind);
        } else {
            state.watch_host(&instruction, found, behind);
        }
    }
}

impl State {
    fn watch_guest(&mut self, instruction: &Instruction, found: Option<Special>, behind: u64) {
        instruction.count(&GUEST);
        instruction.memory(on_reference);
        if self.behind_cause.contains(&instruction.address()) {
            instruction.before(on_going_on);
        }
        match found {
            Some(Special::LoadCr3) => {
                self.behind_cause.insert(behind);
                instruction.before(on_load);
            }
            Some(Special::Service | Special::Halt) => {
                self.behind_cause.insert(behind);
                instruction.before(on_service);
            }
            Some(Special::LoadCr4) => instruction.before(on_flush),
            Some(Special::Vmrun | Special::Return) | None => {}
        }
    }

    fn watch_host(&mut self, instruction: &Instruction, found: Option<Special>, behind: u64) {
        if self.behind_vmrun.contains(&instruction.address()) {
            instruction.before(on_exit);
        }
        match found {
            Some(Special::Vmrun) => {
                self.behind_vmrun.insert(behind);
                instruction.before(on_enter);
            }
            Some(Special::LoadCr3 | Special::Halt | Special::Return) => {
                instruction.before(on_turning_away);
            }
            Some(Special::LoadCr4 | Special::Service) | None => {}
        }
    }
}

unsafe extern "C" fn on_reference(_: c_uint, info: u32, address: u64, _: *mut c_void) {
    let Some(state) = state() else { return };
    let mode = state.world.mode();
    state.walks.reference(mode, address, is_store(info));
}

unsafe extern "C" fn on_load(_: c_uint, _: *mut c_void) {
    let Some(state) = state() else { return };
    state.world.begins(Cause::LoadCr3);
    state.walks.flush();
}

unsafe extern "C" fn on_service(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        state.world.begins(Cause::Other);
    }
}

unsafe extern "C" fn on_going_on(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        state.world.goes_on();
    }
}

unsafe extern "C" fn on_flush(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        state.walks.flush();
    }
}

unsafe extern "C" fn on_enter(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        state.world.enter(HOST.load(Ordering::Relaxed));
    }
}

unsafe extern "C" fn on_exit(_: c_uint, _: *mut c_void) {
    let Some(state) = state() else { return };
    let (guest, host) = (GUEST.load(Ordering::Relaxed), HOST.load(Ordering::Relaxed));
    state.world.exit(host);
    state.walks.exit();
    VALUES.put(
        guest,
        host,
        &state.world,
        state.walks.counted(),
        state.exit_cycles,
    );
}

unsafe extern "C" fn on_turning_away(_: c_uint, _: *mut c_void) {
    if let Some(state) = state() {
        state.world.turns_away();
    }
}
