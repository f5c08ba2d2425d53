//! Tests of every state of the controller.

use super::effect::loss;
use super::*;

const KEY: ThreadKey = ThreadKey {
    pid: 7,
    tid: 8,
    start_ticks: 9,
};

fn seen(tid: i32, cpu_share: f64, high: Option<f64>) -> Seen {
    let expected = high.map(|high| Loss {
        percent: high / 2.0,
        low: 0.0,
        high,
    });
    Seen {
        key: ThreadKey { tid, ..KEY },
        guest: "g".into(),
        cpu_share,
        expected: expected.ok_or_else(|| "nobody knows".into()),
    }
}

fn window(threads: &[Seen], bytes: f64) -> Window {
    let signals = Progress::from([(Signal::Link, bytes)]);
    Window {
        threads: threads.to_vec(),
        progress: BTreeMap::from([("g".to_owned(), signals)]),
        slow_worth: 1.0,
        slow_busy: None,
    }
}

fn moved(controller: &Controller, threads: &[Seen]) -> usize {
    let on_slow = |one: &&Seen| controller.has_moved(one.key);
    threads.iter().filter(on_slow).count()
}

/// Decide until the first move, which must be to slow cores.
fn move_one(controller: &mut Controller, threads: &[Seen]) -> ThreadKey {
    for _ in 0..20 {
        if let Decision::Move { thread, to, .. } = controller.decide(&window(threads, 1e6)) {
            assert_eq!(to, Class::Slow);
            return thread;
        }
    }
    panic!("nothing was moved");
}

/// The moves in this number of windows; the progress depends on whether a thread is on slow cores.
fn moves(
    controller: &mut Controller,
    threads: &[Seen],
    windows: usize,
    mut bytes: impl FnMut(usize, bool) -> f64,
) -> Vec<(usize, Class)> {
    let mut found = Vec::new();
    for at in 0..windows {
        let progress = bytes(at, moved(controller, threads) > 0);
        if let Decision::Move { to, .. } = controller.decide(&window(threads, progress)) {
            found.push((at, to));
        }
    }
    found
}

fn reason(decision: Decision) -> String {
    match decision {
        Decision::Hold { reason } | Decision::Move { reason, .. } => reason,
    }
}

#[test]
fn a_harmless_thread_moves_after_its_guest_was_seen_and_stays() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    move_one(&mut controller, &threads);
    assert!(moves(&mut controller, &threads, 50, |_, _| 1e6).is_empty());
    assert_eq!(moved(&controller, &threads), 1);
}

#[test]
fn one_that_hurts_comes_back_and_is_left_alone_longer_each_time() {
    let settings = Settings {
        retry: 30,
        ..Settings::default()
    };
    let mut controller = Controller::new(settings);
    let threads = [seen(8, 0.2, Some(3.0))];
    let half = |_, on_slow| if on_slow { 5e5 } else { 1e6 };
    let found = moves(&mut controller, &threads, 300, half);
    let classes: Vec<Class> = found.iter().map(|(_, to)| *to).collect();
    let cycle = [Class::Slow, Class::Fast];
    assert!(classes.chunks(2).all(|pair| pair == cycle), "{classes:?}");
    let pauses: Vec<usize> = found.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(
        pauses[0] <= 3 && pauses[1] >= 30 && pauses[3] >= 60,
        "{pauses:?}"
    );
}

#[test]
fn what_is_not_known_or_not_worth_it_is_never_moved() {
    let mut controller = Controller::new(Settings::default());
    let unknown = [seen(8, 0.2, None)];
    assert!(moves(&mut controller, &unknown, 50, |_, _| 1e6).is_empty());
    assert_eq!(
        reason(controller.decide(&window(&unknown, 1e6))),
        "nobody knows"
    );
    let idle = [seen(8, 0.001, Some(1.0))];
    assert!(moves(&mut controller, &idle, 50, |_, _| 1e6).is_empty());
    assert!(reason(controller.decide(&window(&[], 1e6))).contains("no thread"));
}

#[test]
fn slow_cores_are_not_filled_beyond_their_headroom() {
    let mut controller = Controller::new(Settings::default());
    let threads = [
        seen(8, 0.3, Some(1.0)),
        seen(9, 0.3, Some(1.0)),
        seen(10, 0.9, Some(1.0)),
    ];
    moves(&mut controller, &threads, 100, |_, _| 1e6);
    assert_eq!(
        moved(&controller, &threads),
        1,
        "0.3 at half speed is 0.6 of 0.8"
    );
    // The CPU time of other programs on the slow cores counts too.
    let mut controller = Controller::new(Settings::default());
    for _ in 0..50 {
        let busy = Window {
            slow_busy: Some(0.5),
            ..window(&threads, 1e6)
        };
        controller.decide(&busy);
    }
    assert_eq!(moved(&controller, &threads), 0);
}

#[test]
fn without_progress_the_effect_cannot_be_measured_and_the_move_is_taken_back() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    let found = moves(&mut controller, &threads, 40, |_, _| 0.0);
    let classes: Vec<Class> = found.iter().map(|(_, to)| *to).collect();
    assert_eq!(classes, [Class::Slow, Class::Fast]);
}

#[test]
fn unsteady_progress_takes_longer_and_tells_nothing_at_last() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    // The guest works in one window of four.
    let bursts = |at: usize, _| if at.is_multiple_of(4) { 4e6 } else { 0.0 };
    let found = moves(&mut controller, &threads, 60, bursts);
    let (first, last) = (found[0], found[1]);
    assert_eq!((first.1, last.1), (Class::Slow, Class::Fast));
    assert_eq!(last.0 - first.0, Settings::default().longest_trial);
}

#[test]
fn a_thread_that_ends_in_its_trial_is_forgotten() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    move_one(&mut controller, &threads);
    controller.decide(&window(&[], 1e6));
    assert_eq!(moved(&controller, &threads), 0);
}

#[test]
fn a_thread_that_gets_too_dear_comes_back() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    move_one(&mut controller, &threads);
    moves(&mut controller, &threads, 20, |_, _| 1e6);
    let expected = Ok(Loss {
        percent: 20.0,
        low: 10.0,
        high: 30.0,
    });
    let dear = [Seen {
        expected,
        ..seen(8, 0.2, None)
    }];
    let found = moves(&mut controller, &dear, 20, |_, _| 1e6);
    assert_eq!(found[0].1, Class::Fast);
    assert_eq!(moved(&controller, &threads), 0);
}

#[test]
fn a_guest_that_was_not_seen_long_enough_does_not_hold_up_others() {
    let mut controller = Controller::new(Settings::default());
    let new = Seen {
        guest: "new".into(),
        ..seen(9, 0.4, Some(1.0))
    };
    let threads = [new, seen(8, 0.2, Some(1.0))];
    assert_eq!(move_one(&mut controller, &threads), KEY);
}

#[test]
fn a_guest_whose_progress_nothing_shows_is_named() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(1.0))];
    let blind = Window {
        progress: BTreeMap::new(),
        ..window(&threads, 0.0)
    };
    let last = (0..10).map(|_| reason(controller.decide(&blind))).last();
    assert!(last.unwrap().starts_with("nothing shows the progress of g"));
}

#[test]
fn a_refused_move_is_not_repeated_and_a_refused_return_is() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    let thread = move_one(&mut controller, &threads);
    controller.refused(thread, Class::Slow);
    assert_eq!(moved(&controller, &threads), 0);
    assert!(moves(&mut controller, &threads, 100, |_, _| 1e6).is_empty());
    let found = moves(
        &mut controller,
        &threads,
        40,
        |_, on| if on { 5e5 } else { 1e6 },
    );
    assert_eq!(found[1].1, Class::Fast);

    let mut controller = Controller::new(Settings::default());
    move_one(&mut controller, &threads);
    let hurt = window(&threads, 1e5);
    controller.decide(&hurt);
    let back = |decision| {
        matches!(
            decision,
            Decision::Move {
                to: Class::Fast,
                ..
            }
        )
    };
    assert!(back(controller.decide(&hurt)));
    controller.refused(thread, Class::Fast);
    assert_eq!(moved(&controller, &threads), 1);
    assert!(back(controller.decide(&hurt)));
}

#[test]
fn what_somebody_else_moves_is_let_go() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    let thread = move_one(&mut controller, &threads);
    controller.lost(thread);
    assert_eq!(moved(&controller, &threads), 0);
    assert!(moves(&mut controller, &threads, 100, |_, _| 1e6).is_empty());
}

#[test]
fn a_vcpu_that_spins_does_not_hide_what_the_link_lost() {
    let mut controller = Controller::new(Settings::default());
    let threads = [seen(8, 0.2, Some(3.0))];
    let mut back = None;
    for _ in 0..20 {
        let bytes = if moved(&controller, &threads) > 0 {
            8e5
        } else {
            1e6
        };
        let mut window = window(&threads, bytes);
        let progress = window.progress.get_mut("g").unwrap();
        progress.insert(Signal::Cpu, 1.0);
        if let Decision::Move {
            to: Class::Fast,
            reason,
            ..
        } = controller.decide(&window)
        {
            back = Some(reason);
            break;
        }
    }
    assert!(back.unwrap().starts_with("the traffic of g fell by 20.0 %"));
}

#[test]
fn a_loss_has_the_interval_of_its_windows() {
    let steady = loss(&[100.0, 100.0], &[90.0, 90.0], 1.0).unwrap();
    assert!((steady.percent - 10.0).abs() < 1e-9 && steady.high - steady.low < 1e-9);
    let noisy = loss(&[80.0, 120.0, 100.0], &[70.0, 110.0, 90.0], 1.0).unwrap();
    assert!(noisy.low < 0.0 && noisy.high > 20.0);
    assert_eq!(loss(&[0.5], &[0.1], 1.0), None);
}
