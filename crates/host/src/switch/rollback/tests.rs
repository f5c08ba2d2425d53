use super::*;
use crate::switch::journal;

fn log() -> Vec<Entry> {
    vec![
        Entry::Keeper(0, 10, 1),
        Entry::Started(0, 11, 2),
        Entry::Keeper(1, 12, 3),
        Entry::Started(1, 13, 4),
        Entry::Saved(0, "/run/0".into()),
        Entry::Saved(1, "/run/1".into()),
        Entry::Resuming(vec![0, 1]),
    ]
}

/// Old QEMUs are ended only after the last state was logged, and new QEMUs run only after
/// `Resuming` was logged: so no prefix of the log loses a guest.
#[test]
fn every_prefix_of_a_journal_leads_to_a_living_guest() {
    let log = log();
    for length in 0..=log.len() {
        let all_saved = length >= 6;
        for trace in traces(&log[..length], 2) {
            assert_eq!(decide(&trace, true, false), Decision::KeepOld);
            assert_eq!(decide(&trace, true, true), Decision::KeepOld);
            if all_saved {
                let with_new = if length == 7 {
                    Decision::KeepNew
                } else {
                    Decision::Start
                };
                assert_eq!(decide(&trace, false, true), with_new);
            }
            if length == 6 {
                assert_eq!(decide(&trace, false, false), Decision::Start);
            }
        }
    }
}

#[test]
fn a_guest_that_may_have_run_is_not_started_from_its_old_state() {
    let [first, _] = traces(&log(), 2).try_into().unwrap();
    assert_eq!(decide(&first, false, false), Decision::Lost);
    // A new state makes the guest recoverable again.
    let mut log = log();
    log.push(Entry::Saved(0, "/run/0b".into()));
    let [first, second] = traces(&log, 2).try_into().unwrap();
    assert_eq!(decide(&first, false, false), Decision::Start);
    assert_eq!(decide(&second, false, false), Decision::Lost);
}

#[test]
fn a_torn_line_counts_as_absent() {
    let mut text = Vec::new();
    for entry in log() {
        text.extend(serde_json::to_vec(&entry).unwrap());
        text.push(b'\n');
    }
    assert_eq!(journal::entries(&text), log());
    for length in 0..text.len() {
        let read = journal::entries(&text[..length]);
        assert_eq!(read, log()[..read.len()]);
        assert!(read.len() < log().len());
    }
}

#[test]
fn entries_of_guests_that_are_not_there_change_nothing() {
    let entries = [Entry::Started(7, 1, 1), Entry::Resuming(vec![9])];
    assert_eq!(traces(&entries, 1), [Trace::default()]);
}
