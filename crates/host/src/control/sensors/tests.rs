use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use vtax_sys::guest_page::Publisher;

use super::*;

/// The results that a scripted sensor returns in turn.
type Script = Rc<RefCell<VecDeque<Result<Vec<CountedSource>, String>>>>;

struct Scripted(Script);

impl Sensor for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        self.0.borrow_mut().pop_front().unwrap()
    }
}

fn source(name: &str, instructions: u64) -> CountedSource {
    CountedSource {
        name: name.into(),
        counts: Values::default().with(Quantity::Instructions, instructions),
        publication: None,
    }
}

fn published(instructions: u64, publication: u64) -> CountedSource {
    CountedSource {
        publication: Some(publication),
        ..source("page", instructions)
    }
}

/// The steps of one scripted sensor, of a second each.
fn steps(script: Vec<Result<Vec<CountedSource>, String>>) -> Vec<Step> {
    let count = script.len();
    let script: Script = Rc::new(RefCell::new(script.into()));
    let mut sensors = Sensors::new(vec![Box::new(Scripted(script))]);
    (0..count).map(|at| sensors.step(at as f64)).collect()
}

fn instructions(step: &Step) -> Option<f64> {
    step.rate(Quantity::Instructions)
}

fn faults(step: &Step) -> Vec<String> {
    step.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn sources_that_come_and_go_change_nothing_but_their_own_part() {
    let found = steps(vec![
        Ok(vec![source("88/1", 100)]),
        Ok(vec![source("88/1", 150), source("88/2", 7000)]),
        Ok(vec![source("88/1", 200), source("88/2", 7001)]),
        Ok(vec![source("88/2", 7003)]),
    ]);
    assert_eq!(found[0].counts, Values::default());
    let counted: Vec<_> = found.iter().map(instructions).collect();
    assert_eq!(counted, [None, Some(50.0), Some(51.0), Some(2.0)]);
}

#[test]
fn a_lost_sensor_counts_nothing_of_the_time_it_was_lost() {
    let found = steps(vec![
        Ok(vec![source("1-9", 100)]),
        Err("no such file".into()),
        Ok(vec![source("1-9", 900)]),
        Ok(vec![source("1-9", 910)]),
    ]);
    assert_eq!(faults(&found[1]), ["sensor scripted lost: no such file"]);
    assert_eq!(instructions(&found[2]), None);
    assert_eq!(
        faults(&found[2]),
        ["sensor scripted has counted no window yet"]
    );
    assert_eq!(instructions(&found[3]), Some(10.0));
}

#[test]
fn a_counter_that_goes_backwards_is_told_and_counts_on_from_there() {
    let found = steps(vec![
        Ok(vec![source("1-9", 100)]),
        Ok(vec![source("1-9", 99)]),
        Ok(vec![source("1-9", 103)]),
    ]);
    assert_eq!(
        faults(&found[1]),
        ["sensor scripted: instructions of 1-9 went backwards"]
    );
    assert_eq!(instructions(&found[1]), None);
    assert_eq!(instructions(&found[2]), Some(4.0));
}

#[test]
fn a_page_that_is_not_published_is_stuck_until_it_is() {
    let found = steps(vec![
        Ok(vec![published(100, 2)]),
        Ok(vec![published(200, 4)]),
        Ok(vec![published(200, 4)]),
        Ok(vec![published(200, 4)]),
        Ok(vec![published(200, 4)]),
        Ok(vec![published(300, 6)]),
    ]);
    assert_eq!(instructions(&found[1]), Some(100.0));
    assert_eq!(instructions(&found[3]), Some(0.0));
    let stuck = "sensor scripted is stuck: page has published nothing for 3 windows";
    assert_eq!(faults(&found[4]), [stuck]);
    assert_eq!(instructions(&found[5]), Some(100.0));
}

#[test]
fn after_a_restart_the_first_window_counts_nothing() {
    let script = [100, 200, 300].map(|count| Ok(vec![source("1-9", count)]));
    let script: Script = Rc::new(RefCell::new(script.into()));
    let mut sensors = Sensors::new(vec![Box::new(Scripted(script))]);
    sensors.step(0.0);
    sensors.restart();
    let step = sensors.step(1.0);
    assert_eq!((step.seconds, instructions(&step)), (0.0, None));
    assert_eq!(instructions(&sensors.step(2.0)), Some(100.0));
}

fn host(root: &Path, machines: &[&str], exits: u64, faults: u64, invlpg: u64) {
    let folder = root.join("sys/kernel/debug/kvm");
    let _ = fs::remove_dir_all(&folder);
    for name in machines {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for (file, value) in [("exits", exits), ("pf_taken", faults), ("invlpg", invlpg)] {
        fs::write(folder.join(file), format!("{value}\n")).unwrap();
    }
}

#[test]
fn kvms_sums_are_read_and_a_window_in_which_guests_change_is_not_counted() {
    let root = tempfile::tempdir().unwrap();
    let mut sensors = Sensors::of(&Tree::at(root.path()), &[], None);
    assert!(faults(&sensors.step(0.0))[0].contains("mount debugfs"));
    let two = ["88-11", "99-7", "88-x"];
    host(root.path(), &two, 100, 40, 2);
    sensors.step(1.0);
    host(root.path(), &two, 110, 43, 4);
    let step = sensors.step(2.0);
    assert_eq!((step.guests, step.events.len()), (2, 0));
    assert_eq!(step.rate(Quantity::PagingExits), Some(5.0));
    assert_eq!(step.rate(Quantity::Exits), Some(10.0));
    // Another guest had counted much before it came.
    host(root.path(), &["88-11", "101-9"], 9000, 9000, 4);
    let step = sensors.step(3.0);
    assert_eq!(step.events, ["guest 99-7 is gone", "guest 101-9 came"]);
    assert_eq!(step.rate(Quantity::PagingExits), None);
    host(root.path(), &["88-11", "101-9"], 9001, 9000, 4);
    let step = sensors.step(4.0);
    assert_eq!(step.rate(Quantity::PagingExits), Some(0.0));
    // With a kernel that names it otherwise, paging exits are not counted, which is not a count of
    // 0.
    fs::remove_file(root.path().join("sys/kernel/debug/kvm/invlpg")).unwrap();
    assert_eq!(sensors.step(5.0).rate(Quantity::PagingExits), None);
}

#[test]
fn what_a_policy_can_do_without_is_missed_once() {
    let root = tempfile::tempdir().unwrap();
    let module = root.path().join("sys/module/kvm_amd/parameters");
    fs::create_dir_all(&module).unwrap();
    fs::write(module.join("npt"), "N\n").unwrap();
    let cpus = root.path().join("sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    fs::write(cpus.join("online"), "0-1\n").unwrap();
    let mut sensors = Sensors::of(&Tree::at(root.path()), &[], None);
    let steps: Vec<Step> = (0_u32..4)
        .map(|at| {
            host(root.path(), &["88-11"], 100, 40, 2);
            sensors.step(at.into())
        })
        .collect();
    let said: Vec<usize> = steps.iter().map(|step| step.events.len()).collect();
    assert_eq!(said, [1, 0, 0, 0]);
    let event = &steps[0].events[0];
    assert!(
        event.starts_with("decided without it: sensor cr3 lost: "),
        "{event}"
    );
    assert!(steps[1..].iter().all(|step| step.faults.is_empty()));
}

#[test]
fn a_page_of_a_model_is_named_so() {
    let root = tempfile::tempdir().unwrap();
    host(root.path(), &["88-11"], 100, 40, 2);
    let path = root.path().join("page");
    let names = ["model.instructions", "model.paging_exits", "app.requests"];
    let mut publisher = Publisher::create(&path, &names).unwrap();
    let mut sensors = Sensors::of(&Tree::at(root.path()), std::slice::from_ref(&path), None);
    publisher.publish(&[1000, 5, 9]).unwrap();
    sensors.step(0.0);
    publisher.publish(&[3000, 50, 9]).unwrap();
    host(root.path(), &["88-11"], 110, 47, 2);
    let step = sensors.step(2.0);
    assert_eq!(step.rate(Quantity::Instructions), Some(1000.0));
    assert_eq!(step.name(Quantity::Instructions), "model.instructions");
    // KVM counts exits itself, and KVM's count has priority.
    assert_eq!(step.rate(Quantity::PagingExits), Some(3.5));
    assert_eq!(step.name(Quantity::PagingExits), "paging_exits");
    fs::remove_file(&path).unwrap();
    sensors.step(3.0);
    let step = sensors.step(4.0);
    assert!(faults(&step)[0].contains("No such file"), "{step:?}");
    assert_eq!(step.rate(Quantity::Instructions), None);
    assert_eq!(step.rate(Quantity::Exits), Some(0.0));
}

proptest! {
    /// Whatever sources say, a window has no negative count and none that is larger than what all
    /// sources together have counted.
    #[test]
    fn a_window_is_never_more_than_was_counted(
        windows in proptest::collection::vec(
            proptest::collection::btree_map(0_u8..4, 0_u64..1000, 0..4), 1..12),
    ) {
        let mut tally = Tally::default();
        for window in windows {
            let sum: u64 = window.values().sum();
            let sources = window.iter().map(|(name, count)| source(&name.to_string(), *count));
            if let Ok(counts) = tally.advance(sources.collect()) {
                let counted = counts.get(Quantity::Instructions).unwrap_or(0.0);
                prop_assert!((0.0..=sum as f64).contains(&counted));
            }
        }
    }
}
