//! The eBPF object: its variables are set by name; the wanted programs are loaded and attached.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{
    Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput,
};

use vtax_sys::calls::memory::Mapping;

use crate::record::ring::Shape;
use crate::record::row::MAX_ABSOLUTE;
use crate::record::sources::calls::classes;
use vtax_sys::terminal::Error;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));
/// The program that makes the rows.
const OVERFLOW: &str = "on_overflow";
/// The program that makes the row of a CPU that has counted nothing since.
const FINISH: &str = "finish_interval";
/// Words of `struct common` in bpf/recorder.h: how many intervals have ended, whether no more rows
/// are made, and of which interval on.
const COMMON_WORDS: usize = 11;
const NUMBER: usize = 64 / 8;
const STOPPED: usize = 72 / 8;
const END: usize = 80 / 8;
/// `BPF_F_TEST_RUN_ON_CPU` (bpf.h): run the program on the CPU that is named.
const ON_CPU: u32 = 1;
/// A program that has begun a row is done with it then.
const ROW: Duration = Duration::from_millis(1);
/// The program that counts stacks, its map, and how the names of the maps for all stacks begin.
const CALL_SITES: &str = "at_sys_enter";
const CALL_SITES_MAP: &str = "site_counts";
const STACKS_MAPS: &str = "site_";
/// As in bpf/targets.h.
const MAX_PROCESSES: usize = 4 << 20;
/// The value of a variable whose event is not recorded.
const NO_SLOT: u16 = 0xffff;

/// Variables of the object, as the build found them.
pub mod variables {
    /// Name, offset in `.rodata`, size in bytes.
    const VARIABLES: &[(&str, usize, usize)] = include!(concat!(env!("OUT_DIR"), "/variables.rs"));

    /// Offset and size of a variable in bytes.
    pub fn find(name: &str) -> Option<(usize, usize)> {
        VARIABLES
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, offset, size)| (*offset, *size))
    }

    /// All variables that hold slot numbers.
    pub fn of_slots() -> impl Iterator<Item = (usize, usize)> {
        VARIABLES
            .iter()
            .filter(|(name, ..)| name.starts_with("slot_") || name.starts_with("slots_"))
            .map(|(_, offset, size)| (*offset, *size))
    }
}

/// Whose events the programs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Everything that runs.
    Everybody,
    /// Targets and their descendants.
    Targets,
    /// Targets and their descendants; each process that runs a virtual machine becomes a target.
    Machines,
}

/// Settings of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a variable of the programs"
)]
pub struct Settings {
    pub shape: Shape,
    /// Period of the reference event.
    pub period: u64,
    /// Is the reference a time?
    pub of_time: bool,
    /// The slot of the event that ends the intervals, where programs count it.
    pub reference_slot: Option<u16>,
    /// Whose events are counted.
    pub whose: Whose,
    /// The number of perf events that a row reads.
    pub perf_events: u32,
    /// Read the steal clock after the perf events.
    pub steal: bool,
    /// The slot of the first counter that is read.
    pub absolute_slot: u16,
    /// Variable, element, slot.
    pub slots: Vec<(&'static str, usize, u16)>,
    /// The targets' programs have no vDSO.
    pub without_vdso: bool,
    /// Tracepoints whose programs are loaded.
    pub tracepoints: Vec<&'static str>,
    /// Count the stacks of system calls.
    pub call_sites: bool,
    /// Take the stacks of rows.
    pub stacks: bool,
}

/// A perf event whose overflow makes rows until this is dropped.
#[derive(Debug)]
pub struct Overflow {
    link: Link,
    event: RawFd,
}

impl AsFd for Overflow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        vtax_sys::calls::descriptors::borrow(self.event, &self.link)
    }
}

#[derive(Debug)]
pub struct Programs {
    object: Object,
    links: Vec<Link>,
}

impl Programs {
    /// Load what the settings ask for.
    ///
    /// Fails when the settings do not fit the programs, or when the kernel refuses to load them.
    pub fn load(settings: &Settings) -> Result<Self, Error> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, collect_message)));
        let mut open = ObjectBuilder::default()
            .name("vtax")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| failed("open", &error))?;
        set_variables(&mut open, settings)?;
        size_maps(&mut open, settings).map_err(|error| failed("size", &error))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wanted = (name == OVERFLOW && settings.reference_slot.is_none())
                || (name == FINISH && settings.reference_slot.is_some())
                || (settings.call_sites && name == CALL_SITES)
                || name
                    .strip_prefix("on_")
                    .is_some_and(|tracepoint| settings.tracepoints.contains(&tracepoint));
            program.set_autoload(wanted);
        }
        let object = open.load().map_err(|error| failed("load", &error))?;
        Ok(Self {
            object,
            links: Vec::new(),
        })
    }

    /// Attach the programs that count.
    ///
    /// Fails, naming the program, when the kernel refuses to attach it.
    pub fn attach_counters(&mut self) -> Result<(), Error> {
        let mut links = Vec::new();
        for program in self.object.progs_mut() {
            if program.autoload() && program.name() != OVERFLOW && program.name() != FINISH {
                let link = program.attach_trace().map_err(|error| {
                    let name = program.name().to_string_lossy().into_owned();
                    failed(&format!("attach {name}"), &error)
                })?;
                links.push(link);
            }
        }
        self.links.extend(links);
        Ok(())
    }

    /// Make a row at each overflow of this perf event.
    ///
    /// Fails when the kernel refuses to attach the program to the event.
    pub fn attach_overflow(&mut self, event: OwnedFd) -> Result<Overflow, Error> {
        let program = self
            .object
            .progs_mut()
            .find(|program| program.name() == OVERFLOW);
        let link = program
            .ok_or_else(|| failed("attach", &"the overflow program is absent"))?
            .attach_perf_event(event.as_raw_fd())
            .map_err(|error| failed("attach to the reference event", &error))?;
        // The link closes the event's descriptor from now on.
        let event = event.into_raw_fd();
        Ok(Overflow { link, event })
    }

    /// Let the programs that count make the rows of all intervals that have ended, and no more.
    pub fn stop_rows(&mut self, cpus: &[u32]) {
        let common = self.map_fd("common");
        let Some(words) = common.and_then(|map| Mapping::new(map, COMMON_WORDS, true).ok()) else {
            return;
        };
        let ended = words.load(NUMBER, Ordering::Acquire);
        words.store(END, ended + 1, Ordering::SeqCst);
        for cpu in cpus {
            self.finish_interval(*cpu);
        }
        std::thread::sleep(ROW);
        words.store(STOPPED, 1, Ordering::Release);
        std::thread::sleep(ROW);
    }

    /// Let a CPU make its row of an interval that others have ended.
    fn finish_interval(&mut self, cpu: u32) {
        let mut programs = self.object.progs_mut();
        let Some(finish) = programs.find(|program| program.name() == FINISH) else {
            return;
        };
        let input = ProgramInput {
            cpu,
            flags: ON_CPU,
            ..ProgramInput::default()
        };
        // A CPU that has just gone offline counts nothing.
        let _ = finish.test_run(input);
    }

    /// Let rows on a CPU read a perf event.
    ///
    /// Fails when the map has no entry for the CPU, or when the kernel refuses the event.
    pub fn put_perf_event(
        &self,
        cpu: u32,
        index: usize,
        event: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let entry = cpu as usize * MAX_ABSOLUTE + index;
        let key = u32::try_from(entry).unwrap_or(u32::MAX).to_ne_bytes();
        self.update("perf", &key, &event.as_raw_fd().to_ne_bytes())
    }

    /// Make a process a target.
    ///
    /// Fails when the map of the targets cannot be mapped.
    pub fn put_target(&self, process: u32) -> Result<(), Error> {
        let words = self
            .map_fd("targets")
            .ok_or_else(|| failed("update", &"a map is absent"))?;
        let bits = Mapping::new(words, MAX_PROCESSES / 64, true)
            .map_err(|errno| failed("map targets", &errno))?;
        bits.set_bits(process as usize / 64, 1 << (process % 64));
        Ok(())
    }

    /// The two maps of the rings: states and rows.
    pub fn ring_maps(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        Some((self.map_fd("cpus")?, self.map_fd("rows")?))
    }

    /// Name and number of each loaded program.
    pub fn numbers(&self) -> Vec<(String, u32)> {
        self.object
            .progs()
            .filter(libbpf_rs::ProgramImpl::autoload)
            .filter_map(|program| {
                let number = libbpf_rs::Program::id_from_fd(program.as_fd()).ok()?;
                Some((program.name().to_string_lossy().into_owned(), number))
            })
            .collect()
    }

    /// How often each call without a class was made, by its number.
    ///
    /// Fails when the map of these counts cannot be mapped.
    pub fn other_calls(&self) -> Result<Vec<u64>, Error> {
        let counts = self
            .map_fd("other_calls")
            .ok_or_else(|| failed("read", &"a map is absent"))?;
        let counts = Mapping::new(counts, classes::NUMBERS, false)
            .map_err(|errno| failed("map other_calls", &errno))?;
        let mut found = Vec::with_capacity(classes::NUMBERS);
        counts.copy(0, classes::NUMBERS, &mut found);
        Ok(found)
    }

    /// A map by its name.
    pub fn map(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == name)
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.object
            .maps()
            .find(|known| known.name() == map)
            .ok_or_else(|| failed("update", &"a map is absent"))?
            .update(key, value, MapFlags::ANY)
            .map_err(|error| failed(&format!("update {map}"), &error))
    }

    fn map_fd(&self, name: &str) -> Option<BorrowedFd<'_>> {
        // The descriptor belongs to the object, as the map's descriptor does, which has no such
        // lifetime.
        self.object
            .maps()
            .find(|map| map.name() == name)
            .map(|map| map.as_fd().as_raw_fd())
            .map(|fd| vtax_sys::calls::descriptors::borrow(fd, &self.object))
    }
}

/// The last warning among libbpf's many messages says best why a load failed.
static LAST_WARNING: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

fn collect_message(_: PrintLevel, text: String) {
    if std::env::var_os("VTAX_RECORD_DEBUG").is_some() {
        eprint!("{text}");
    }
    if let (Ok(mut last), false) = (LAST_WARNING.lock(), text.contains("-- BEGIN")) {
        text.trim().clone_into(&mut last);
    }
}

fn failed(step: &str, error: &dyn ToString) -> Error {
    let warning = LAST_WARNING
        .lock()
        .map(|text| text.clone())
        .unwrap_or_default();
    let mut reason = error.to_string();
    if let Some(line) = warning.lines().next_back().filter(|line| !line.is_empty()) {
        reason = format!("{reason} ({line})");
    }
    Error::failure(
        format!("eBPF programs: {step}"),
        reason,
        "VTAX_RECORD_DEBUG=1 shows all that libbpf says",
    )
}

fn size_maps(open: &mut OpenObject, settings: &Settings) -> Result<(), libbpf_rs::Error> {
    let shape = settings.shape;
    for mut map in open.maps_mut() {
        match map.name().to_str() {
            Some(CALL_SITES_MAP) => map.set_autocreate(settings.call_sites)?,
            Some(name) if name.starts_with(STACKS_MAPS) => {
                map.set_autocreate(settings.call_sites || settings.stacks)?;
            }
            Some("cpus") => map.set_max_entries(shape.cpus)?,
            Some("perf") => {
                map.set_max_entries(shape.cpus * u32::try_from(MAX_ABSOLUTE).unwrap_or(1))?;
            }
            Some("rows") => {
                map.set_value_size(shape.row_bytes())?;
                map.set_max_entries(shape.all_rows())?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn set_variables(open: &mut OpenObject, settings: &Settings) -> Result<(), Error> {
    let mut map = open
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or_else(|| failed("open", &".rodata is absent"))?;
    let data = map
        .initial_value_mut()
        .ok_or_else(|| failed("open", &".rodata has no value"))?;
    let absent = || failed("open", &"a variable is absent");
    fill(data, settings).ok_or_else(absent)
}

/// Write all variables; `None` when one of them does not exist.
fn fill(data: &mut [u8], settings: &Settings) -> Option<()> {
    for (offset, size) in variables::of_slots() {
        for slot in data.get_mut(offset..offset + size)?.as_chunks_mut::<2>().0 {
            *slot = NO_SLOT.to_ne_bytes();
        }
    }
    let mut put = |name: &str, element: usize, bytes: &[u8]| {
        let (offset, size) = variables::find(name)?;
        let start = element * bytes.len();
        if start + bytes.len() > size {
            return None;
        }
        let target = data.get_mut(offset + start..offset + start + bytes.len())?;
        target.copy_from_slice(bytes);
        Some(())
    };
    let slots = u32::try_from(settings.shape.slots).ok()?;
    put("rows_per_cpu", 0, &settings.shape.rows.to_ne_bytes())?;
    put("period", 0, &settings.period.max(1).to_ne_bytes())?;
    put("slots", 0, &slots.to_ne_bytes())?;
    put("filter", 0, &[u8::from(settings.whose != Whose::Everybody)])?;
    put(
        "machines",
        0,
        &[u8::from(settings.whose == Whose::Machines)],
    )?;
    put("of_time", 0, &[u8::from(settings.of_time)])?;
    put(
        "of_event",
        0,
        &[u8::from(settings.reference_slot.is_some())],
    )?;
    let reference = settings.reference_slot.unwrap_or(NO_SLOT);
    put("reference_slot", 0, &reference.to_ne_bytes())?;
    put("perf_events", 0, &settings.perf_events.to_ne_bytes())?;
    put("without_vdso", 0, &[u8::from(settings.without_vdso)])?;
    put("with_stacks", 0, &[u8::from(settings.stacks)])?;
    put("with_steal", 0, &[u8::from(settings.steal)])?;
    put(
        "absolute_slot",
        0,
        &u32::from(settings.absolute_slot).to_ne_bytes(),
    )?;
    for (number, rule) in classes::rules() {
        put("call_rules", number, &(rule as u16).to_ne_bytes())?;
    }
    for (variable, element, slot) in &settings.slots {
        put(variable, *element, &slot.to_ne_bytes())?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::libbpf_sys::bpf_insn;

    /// linux/bpf.h: `BPF_STX | BPF_DW | BPF_ATOMIC`, and `BPF_XCHG`.
    const ATOMIC: u8 = 0xdb;
    const EXCHANGE: i32 = 0xe1;

    /// A plain store, even a volatile one, may become visible before the row on processors that
    /// reorder stores.
    #[test]
    fn the_head_of_a_ring_is_published_by_an_instruction_that_keeps_the_order() {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(OBJECT).unwrap();
        let overflow = open.progs_mut().find(|program| program.name() == OVERFLOW);
        let overflow = overflow.unwrap();
        let exchanges: Vec<&bpf_insn> = overflow
            .insns()
            .iter()
            .filter(|one| one.code == ATOMIC && one.imm == EXCHANGE)
            .collect();
        assert_eq!(exchanges.len(), 1);
        assert_eq!(exchanges[0].off, 0, "the head is the first word");
    }
}
