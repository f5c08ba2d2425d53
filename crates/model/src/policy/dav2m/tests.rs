use super::*;

const WINDOW: u64 = 1000;

fn parameters() -> Dav2mParameters {
    Dav2mParameters {
        threshold_vexit: 10.0,
        threshold_tmiss: 100.0,
        ..Dav2mParameters::scaled(WINDOW)
    }
}

/// A guest whose CPI and TLB misses per window are typed in.
struct Script {
    policy: Dav2m,
    now: Reading,
}

impl Script {
    fn new(parameters: Dav2mParameters) -> Self {
        Self {
            policy: Dav2m::new(parameters).unwrap(),
            now: Reading::default(),
        }
    }

    fn windows(&mut self, count: u32, cpi: f64, misses: f64) -> State {
        for _ in 0..count {
            self.now.instructions += WINDOW as f64;
            self.now.cycles += cpi * WINDOW as f64;
            self.now.tlb_misses += misses;
            self.policy.on_window(&self.now).unwrap();
        }
        self.policy.state()
    }

    fn exits(&mut self, count: u64) -> State {
        self.now.shadow_exits += count as f64;
        self.policy.on_shadow_exits(count, &self.now).unwrap();
        self.policy.state()
    }

    fn thresholds(&self) -> (f64, f64) {
        (self.policy.threshold_vexit, self.policy.threshold_tmiss)
    }
}

#[test]
fn exits_above_the_threshold_lead_through_the_probe_to_nested() {
    let mut script = Script::new(parameters());
    assert_eq!(script.windows(200, 2.0, 0.0), State::Shadow);
    assert_eq!(script.policy.exits_until_decision(), 11);
    assert_eq!(script.exits(10), State::Shadow);
    assert_eq!(script.exits(1), State::PreNested);
    assert_eq!(script.windows(1, 1.5, 0.0), State::Prepaging);
    // Better, with nothing to damp: the switch may come sooner next time.
    assert_eq!(script.thresholds(), (5.0, 100.0));
    assert_eq!(script.windows(8, 1.5, 0.0), State::Prepaging);
    assert_eq!(script.windows(1, 1.5, 0.0), State::Nested);
    assert_eq!(script.windows(50, 1.5, 10.0), State::Nested);
}

#[test]
fn exits_are_counted_per_window() {
    let mut script = Script::new(parameters());
    for _ in 0..5 {
        assert_eq!(script.exits(10), State::Shadow);
        script.windows(1, 2.0, 0.0);
    }
}

#[test]
fn a_failed_probe_of_nested_paging_raises_its_threshold_and_both_when_soon() {
    let mut script = Script::new(parameters());
    script.windows(200, 2.0, 0.0);
    script.exits(11);
    assert_eq!(script.windows(1, 2.3, 0.0), State::Shadow);
    assert_eq!(script.thresholds(), (20.0, 100.0));
    // Within `window_trans` of the last change in either direction: damped at both changes.
    assert_eq!(script.exits(21), State::PreNested);
    assert_eq!(script.thresholds(), (40.0, 200.0));
    assert_eq!(script.windows(1, 2.3, 0.0), State::Shadow);
    assert_eq!(script.thresholds(), (160.0, 400.0));
}

#[test]
fn an_overflow_soon_after_an_exit_driven_switch_does_not_end_the_probe() {
    let mut script = Script::new(parameters());
    script.windows(3, 2.0, 0.0);
    script.now.instructions += 700.0;
    script.now.cycles += 1400.0;
    assert_eq!(script.exits(11), State::PreNested);
    script.now.instructions -= 700.0;
    script.now.cycles -= 1000.0;
    assert_eq!(script.windows(1, 1.5, 0.0), State::PreNested);
    assert_eq!(script.windows(1, 1.5, 0.0), State::Prepaging);
}

fn nested() -> Script {
    let mut script = Script::new(Dav2mParameters {
        start: PagingMode::Nested,
        ..parameters()
    });
    assert_eq!(script.windows(200, 2.0, 10.0), State::Nested);
    script
}

#[test]
fn tlb_misses_above_the_threshold_lead_to_a_probe_of_shadow_paging() {
    let mut script = nested();
    assert_eq!(script.windows(9, 2.0, 11.0), State::Nested);
    assert_eq!(script.windows(1, 2.0, 11.0), State::PreShadow);
    assert_eq!(script.windows(9, 1.8, 0.0), State::PreShadow);
    assert_eq!(script.windows(1, 1.8, 0.0), State::Shadow);
    assert_eq!(script.thresholds(), (10.0, 50.0));

    let mut script = nested();
    script.windows(10, 2.0, 11.0);
    assert_eq!(script.windows(10, 2.3, 0.0), State::Nested);
    assert_eq!(script.thresholds(), (10.0, 200.0));
}

#[test]
fn the_probe_of_shadow_paging_ends_at_once_when_exits_pass_the_threshold() {
    let mut script = nested();
    script.windows(10, 2.0, 11.0);
    for _ in 0..5 {
        assert_eq!(script.exits(10), State::PreShadow);
        assert_eq!(script.windows(1, 1.8, 0.0), State::PreShadow);
    }
    assert_eq!(script.exits(11), State::PreNested);
}

#[test]
fn open_points_are_parameters() {
    let mut short = Script::new(Dav2mParameters {
        start: PagingMode::Nested,
        shadow_probe: ShadowProbe::WindowVexit,
        threshold_fall: 1.0,
        ..parameters()
    });
    short.windows(10, 2.0, 11.0);
    assert_eq!(short.windows(1, 1.8, 0.0), State::Shadow);
    assert_eq!(short.thresholds(), (20.0, 200.0));

    let mut direct = Script::new(Dav2mParameters {
        prepaging: false,
        ..parameters()
    });
    direct.exits(11);
    assert_eq!(direct.windows(1, 1.8, 0.0), State::Nested);

    // With the pseudo-code's counters, the probe of shadow paging is over at the next overflow.
    let mut literal = Script::new(Dav2mParameters {
        start: PagingMode::Nested,
        reset_at_switch: false,
        ..parameters()
    });
    literal.windows(10, 2.0, 11.0);
    assert_eq!(literal.windows(1, 1.8, 0.0), State::Shadow);
}

#[test]
fn an_unknown_cpi_is_no_evidence() {
    let mut script = Script::new(parameters());
    assert_eq!(script.exits(11), State::PreNested);
    assert_eq!(script.policy.cpi_shadow, None);
    assert_eq!(script.windows(1, 9.0, 0.0), State::Prepaging);
}

#[test]
fn windows_in_the_wrong_order_name_the_field() {
    let wrong = |change: fn(&mut Dav2mParameters)| {
        let mut parameters = parameters();
        change(&mut parameters);
        parameters.check().unwrap_err().to_string()
    };
    assert_eq!(
        wrong(|p| p.window_vexit = 999),
        "window_vexit: must be at least window_inst (1000 instructions)"
    );
    assert_eq!(
        wrong(|p| p.window_tmiss = 1000),
        "window_tmiss: must be above window_vexit (1000 instructions)"
    );
    assert_eq!(
        wrong(|p| p.window_trans = 10_000),
        "window_trans: must be above window_tmiss (10000 instructions)"
    );
    assert!(wrong(|p| p.window_inst = 0).starts_with("window_inst: "));
    assert!(wrong(|p| p.p_factor = f64::NAN).starts_with("p_factor: "));
    assert!(wrong(|p| p.threshold_tmiss = 0.0).starts_with("threshold_tmiss: "));
    assert!(wrong(|p| p.smoothing_cpi = 0).starts_with("smoothing_cpi: "));
}

#[test]
fn the_documentation_shows_the_diagram() {
    let text = include_str!("../../../../../docs/paging.md");
    for arrow in TRANSITIONS {
        let on = match arrow.on {
            Event::ShadowExit => "exit",
            Event::Overflow => "overflow",
        };
        let row = format!(
            "| {} | {on} | {} | {} | {} |",
            arrow.from.name(),
            arrow.condition,
            arrow.to.name(),
            arrow.action
        );
        assert!(text.contains(&row), "{row}");
    }
}
