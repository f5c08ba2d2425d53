//! Events without a portable name: raw codes, and what this machine's PMUs call their own events.
//!
//! A PMU explains its events below `/sys/bus/event_source/devices` (the kernel's
//! `Documentation/ABI/testing/sysfs-bus-event_source-devices-{events,format}`). The crate
//! perf-event2 reads that too, but only below `/sys`, so that no test could give it a tree.

use std::collections::HashMap;

use perf_event_open_sys::bindings::PERF_TYPE_RAW;

use crate::record::perf::Request;
use crate::record::sources::{Event, select};
use vtax_sys::tree::Tree;

use super::parts;

const DEVICES: &str = "/sys/bus/event_source/devices";
/// What the names of raw events begin with; a hexadecimal number follows.
const RAW: &str = "hw.raw.";

/// The raw events and the PMUs' own events that words of a list name, each once.
///
/// The layer `hw` alone names none of them: many are the portable events again.
pub fn asked(tree: &Tree, list: &str) -> Vec<Event> {
    let mut found: Vec<Event> = Vec::new();
    for word in list.split(',').map(str::trim) {
        let named = match word.strip_prefix(RAW) {
            Some(rest) => raw(rest),
            None => pmus(tree)
                .filter(|pmu| Some(pmu.as_str()) == word.split('.').nth(1))
                .flat_map(|pmu| of_pmu(tree, &pmu))
                .collect(),
        };
        for event in named {
            if select::matches(&event, word) && !found.contains(&event) {
                found.push(event);
            }
        }
    }
    found
}

/// A raw event and its parts, by what follows RAW; none when that is no number of 64 bits.
fn raw(rest: &str) -> Vec<Event> {
    let code = rest.split('.').next().unwrap_or_default();
    let Some(config) = code.strip_prefix("0x").and_then(hexadecimal) else {
        return Vec::new();
    };
    let request = Request {
        kind: PERF_TYPE_RAW,
        config,
        ..Request::default()
    };
    let about = format!("raw event {code} of the processor's manual");
    parts(&format!("raw.{code}"), &about, request, false).collect()
}

/// What the PMUs call their own events, with the parts of each, in the order of their names.
pub fn of_pmus(tree: &Tree) -> Vec<Event> {
    pmus(tree).flat_map(|pmu| of_pmu(tree, &pmu)).collect()
}

/// The PMUs whose events are those of a CPU; the others, for a whole package, have a `cpumask`.
fn pmus(tree: &Tree) -> impl Iterator<Item = String> {
    let names = tree.names(DEVICES).into_iter();
    names.filter(move |pmu| !tree.exists(&format!("{DEVICES}/{pmu}/cpumask")))
}

fn of_pmu(tree: &Tree, pmu: &str) -> Vec<Event> {
    let folder = format!("{DEVICES}/{pmu}");
    let Some(kind) = tree.number(&format!("{folder}/type")) else {
        return Vec::new();
    };
    let formats = format!("{folder}/format");
    let fields: HashMap<String, Field> = tree
        .names(&formats)
        .into_iter()
        .filter_map(|name| {
            let field = Field::parse(&tree.text(&format!("{formats}/{name}"))?)?;
            Some((name, field))
        })
        .collect();
    let names = tree.names(&format!("{folder}/events")).into_iter();
    // A dot begins the scale or the unit of an event, a comma would end its name.
    let names = names.filter(|name| !name.contains(['.', ',']));
    names
        .filter_map(|name| {
            let text = tree.text(&format!("{folder}/events/{name}"))?;
            let [config, config1, config2] = configs(&text, &fields)?;
            let request = Request {
                kind,
                config,
                config1,
                config2,
                ..Request::default()
            };
            let about = format!("{pmu}'s own event {name}, {text}");
            Some(parts(&format!("{pmu}.{name}"), &about, request, false).collect::<Vec<_>>())
        })
        .flatten()
        .collect()
}

/// The bits of `perf_event_attr` that a term's value goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    /// 0: `config`, 1: `config1`, 2: `config2`.
    word: usize,
    mask: u64,
}

impl Field {
    /// Read `config1:0-7,21`; `None` for what is of another form or another word.
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let mut mask = 0;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= u64::BITS {
                return None;
            }
            mask |= (u64::MAX >> (u64::BITS - 1 - last)) & (u64::MAX << first);
        }
        let word = word_of(word)?;
        Some(Self { word, mask })
    }

    /// The value's bits, from the lowest on, in the field's bits; `None` when they do not fit.
    fn place(self, value: u64) -> Option<u64> {
        let mut rest = value;
        let mut placed = 0;
        for bit in (0..u64::BITS).filter(|bit| self.mask >> bit & 1 == 1) {
            placed |= (rest & 1) << bit;
            rest >>= 1;
        }
        (rest == 0).then_some(placed)
    }
}

fn word_of(name: &str) -> Option<usize> {
    ["config", "config1", "config2"]
        .iter()
        .position(|word| *word == name)
}

/// The three words of an event such as `event=0xcd,umask=0x1,edge`.
///
/// `None` when a term has no field, its value does not fit that, or is to be chosen (`core=?`).
fn configs(text: &str, fields: &HashMap<String, Field>) -> Option<[u64; 3]> {
    let mut words = [0; 3];
    for term in text.split(',') {
        // A term without a value is a flag.
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let whole = || word_of(name).map(|word| Field { word, mask: !0 });
        let field = fields.get(name).copied().or_else(whole)?;
        let value = match value.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits)?,
            None => value.parse().ok()?,
        };
        *words.get_mut(field.word)? |= field.place(value)?;
    }
    Some(words)
}

fn hexadecimal(digits: &str) -> Option<u64> {
    // from_str_radix would take a sign.
    let plain = digits.chars().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::perf::Exclude;
    use crate::record::sources::Origin;
    use proptest::prelude::*;
    use std::fs;

    /// A tree with these files below DEVICES.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::at(root.path());
        for (path, text) in files {
            let path = tree.path(&format!("{DEVICES}/{path}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (root, tree)
    }

    fn request(events: &[Event], name: &str) -> Request {
        let event = events.iter().find(|event| event.name == name).unwrap();
        match event.origin {
            Origin::Perf(request) => request,
            _ => panic!("{name} is no perf event"),
        }
    }

    #[test]
    fn a_pmus_events_have_the_terms_and_the_format_of_its_files() {
        let (_root, tree) = tree(&[
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/edge", "config:18\n"),
            ("cpu/format/ldlat", "config1:0-15\n"),
            ("cpu/format/wide", "config3:0-15\n"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("cpu/events/starts", "event=0x14,edge\n"),
            ("cpu/events/starts.scale", "2\n"),
            ("cpu/events/chosen", "event=?\n"),
            ("cpu/events/too-wide", "wide=1\n"),
            ("cpu/events/too-large", "event=0x100\n"),
            ("uncore_imc/type", "14\n"),
            ("uncore_imc/cpumask", "0\n"),
            ("uncore_imc/events/reads", "config=1\n"),
        ]);
        let events = of_pmus(&tree);
        assert_eq!(events.len(), 2 * 5);
        let loads = request(&events, "hw.cpu.mem-loads");
        assert_eq!(
            (loads.kind, loads.config, loads.config1),
            (PERF_TYPE_RAW, 0x1cd, 3)
        );
        assert_eq!(request(&events, "hw.cpu.starts").config, 0x0004_0014);
        let kernel = request(&events, "hw.cpu.starts.kernel");
        let user = Exclude {
            user: true,
            ..Exclude::default()
        };
        assert_eq!(kernel.exclude, user);
    }

    #[test]
    fn only_what_a_list_names_is_added() {
        let (_root, tree) = tree(&[
            ("cpu/type", "4\n"),
            ("cpu/events/a", "config=0x10\n"),
            ("cpu/events/b", "config=0x11\n"),
        ]);
        let names = |list: &str| -> Vec<String> {
            let events = asked(&tree, list).into_iter();
            events.map(|event| event.name).collect()
        };
        assert!(names("hw,default,sched,hw.cycles,raw.0x8,").is_empty());
        assert_eq!(names("hw.cpu").len(), 10);
        assert_eq!(
            names("hw.cpu.b.user,hw.cpu.b.user,hw.raw.0x1b4.kernel"),
            ["hw.cpu.b.user", "hw.raw.0x1b4.kernel"]
        );
        for wrong in ["0x", "0x1g", "0x+1", "12", "0x10000000000000000"] {
            assert!(names(&format!("hw.raw.{wrong}")).is_empty(), "{wrong}");
        }
        let raw = asked(&tree, "hw.raw.0xffffffffffffffff");
        assert_eq!(request(&raw, "hw.raw.0xffffffffffffffff").config, u64::MAX);
    }

    /// The value that bits of a word are, from the lowest on.
    fn gathered(word: u64, mask: u64) -> u64 {
        let bits = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1);
        bits.enumerate()
            .fold(0, |value, (at, bit)| value | (word >> bit & 1) << at)
    }

    /// A mask as a format file tells it.
    fn told(mask: u64) -> String {
        let bits = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1);
        let bits: Vec<String> = bits.map(|bit| bit.to_string()).collect();
        format!("config2:{}", bits.join(","))
    }

    proptest! {
        #[test]
        fn values_are_where_the_format_says_and_nowhere_else(
            first in 1_u64.., second in 1_u64.., value in any::<u64>(), other in any::<u64>(),
        ) {
            let masks = [first, second & !first];
            prop_assume!(masks[1] != 0);
            let fields: HashMap<String, Field> = ["a", "b"]
                .iter()
                .zip(masks)
                .map(|(name, mask)| ((*name).to_owned(), Field::parse(&told(mask)).unwrap()))
                .collect();
            let widest = |mask: u64| u64::MAX >> mask.count_zeros();
            let (a, b) = (value & widest(masks[0]), other & widest(masks[1]));
            let [config, config1, word] = configs(&format!("a={a},b={b:#x}"), &fields).unwrap();
            prop_assert_eq!((config, config1), (0, 0));
            prop_assert_eq!((gathered(word, masks[0]), gathered(word, masks[1])), (a, b));
            prop_assert_eq!(word & !(masks[0] | masks[1]), 0);
            if let Some(larger) = widest(masks[0]).checked_add(1) {
                prop_assert_eq!(configs(&format!("a={larger}"), &fields), None);
            }
        }

        #[test]
        fn any_text_is_answered(
            format in "(config[0-9]?)?:?[-,0-9]{0,20}|.{0,20}",
            text in "(a|b|config)=?(0x)?[0-9a-f]{0,20}(,.{0,9})?|.{0,30}",
        ) {
            let field = Field::parse(&format).map(|field| ("a".to_owned(), field));
            let _ = configs(&text, &field.into_iter().collect());
        }

        #[test]
        fn any_list_is_answered(list in "(hw\\.(raw\\.(0x)?)?)?.{0,30}") {
            let _ = asked(&Tree::at("/nonexistent"), &list);
        }
    }
}
