use super::*;

const WINDOW: u64 = 1_000_000;

fn policy(change: fn(&mut VtaxParameters)) -> Vtax {
    let mut parameters = VtaxParameters::with_window(WINDOW);
    change(&mut parameters);
    let costs = Costs {
        exit: 1500,
        nested_fault: 0,
        shadow_fill: 1500,
        reflect_fault: 0,
        table_write: 0,
        unsync: 0,
        sync_table: 0,
        sync_entry: 0,
        zap: 0,
        invlpg: 0,
        load_cr3: 0,
        build_root: 0,
        other: 0,
        policy: 0,
        switch_to_nested: 2000,
        switch_to_shadow: 2000,
        guest_fault: 0,
        system_call: 0,
        context_switch: 0,
        guest_load_cr3: 0,
        guest_invlpg: 0,
    };
    Vtax::new(parameters, &costs).unwrap()
}

/// A guest whose windows are typed in.
struct Script {
    policy: Vtax,
    now: Reading,
}

impl Script {
    fn new(change: fn(&mut VtaxParameters)) -> Self {
        Self {
            policy: policy(change),
            now: Reading {
                walk_cycles: Some(0.0),
                vmm_cycles: Some(0.0),
                ..Reading::default()
            },
        }
    }

    /// Cycles of the whole window, of its walks and of its exits, and how many exits.
    fn window(&mut self, cycles: f64, walks: f64, exits: u64) -> PagingMode {
        self.now.instructions += WINDOW as f64;
        self.now.cycles += cycles;
        self.now.walk_cycles = self.now.walk_cycles.map(|before| before + walks);
        self.now.vmm_cycles = self.now.vmm_cycles.map(|vmm| vmm + exits as f64 * 3000.0);
        self.now.shadow_exits += exits as f64;
        if exits > 0 {
            self.policy.on_shadow_exits(exits, &self.now).unwrap();
        }
        self.policy.on_window(&self.now).unwrap()
    }
}

#[test]
fn certain_gains_are_taken_at_once_and_the_change_is_measured() {
    let mut script = Script::new(|_| {});
    // Exits of 30 %, walks of 1 %: even walks that are six times dearer leave a gain.
    assert_eq!(script.window(1.5e6, 1.5e4, 150), PagingMode::Nested);
    assert_eq!(script.policy.view().state, "ToNested");
    script.window(1.25e6, 3e4, 0);
    script.window(1.1e6, 3e4, 0);
    // The first window took 150,000 cycles more than the window that followed.
    assert!((script.policy.change_costs().to_nested - 150_000.0).abs() < 1.0);
    for _ in 0..100 {
        assert_eq!(script.window(1.1e6, 1e4, 0), PagingMode::Nested);
    }
}

#[test]
fn gains_not_worth_a_probe_are_left() {
    let mut script = Script::new(|_| {});
    for _ in 0..2000 {
        assert_eq!(script.window(1.2e6, 1e5, 1), PagingMode::Shadow);
    }
}

#[test]
fn a_probe_that_fails_goes_back_and_is_rarely_repeated() {
    let mut script = Script::new(|parameters| parameters.start = PagingMode::Nested);
    let mut in_shadow = 0;
    for _ in 0..2000 {
        // A fifth of the cycles are walks; shadow paging would lose more to exits.
        if script.policy.wanted() == PagingMode::Nested {
            script.window(1.5e6, 3e5, 0);
        } else {
            script.window(1.8e6, 1e5, 170);
            in_shadow += 1;
        }
    }
    assert!((2..40).contains(&in_shadow), "{in_shadow} windows");
}

#[test]
fn without_purse_and_grant_only_the_walker_moves() {
    let mut script = Script::new(|parameters| {
        parameters.start = PagingMode::Nested;
        parameters.grant = 0.0;
        parameters.allowance = 0.0;
    });
    for _ in 0..1000 {
        assert_eq!(script.window(1.5e6, 3e5, 0), PagingMode::Nested);
    }
}

#[test]
fn a_value_that_means_nothing_is_named() {
    let wrong = |change: fn(&mut VtaxParameters)| {
        let mut parameters = VtaxParameters::with_window(WINDOW);
        change(&mut parameters);
        parameters.check().unwrap_err().to_string()
    };
    assert!(wrong(|p| p.window = 0).starts_with("window: "));
    assert!(wrong(|p| p.allowance = 0.6).starts_with("allowance: "));
    assert!(wrong(|p| p.walk_ratio = [3.0, 2.0]).starts_with("walk_ratio[1]: "));
    assert!(wrong(|p| p.grant = f64::NAN).starts_with("grant: "));
    assert!(wrong(|p| p.phases = 1).starts_with("phases: "));
}
