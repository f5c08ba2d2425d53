//! Who runs: the guest, KVM for it, or others of the emulated host.

use vtax_sys::kvm::PagingMode;

/// An instruction of the guest at which KVM may make it leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    LoadCr3,
    /// One that has nothing to do with paging: HLT, CPUID, port I/O, a model-specific register.
    Other,
}

/// The changes between guest and host, as the instructions tell them.
#[derive(Debug, Default)]
pub struct World {
    inside: bool,
    /// What the guest is about to execute, as long as nothing has run since.
    begun: Option<Cause>,
    mode: Option<PagingMode>,
    /// What the host had executed at the exit; `None`: it was for something else than paging.
    host_at_exit: Option<u64>,
    pub exits: u64,
    pub paging: Paging,
}

/// Exits for paging: KVM lets the guest go on straight away, and the guest did not ask for
/// something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    pub exits: u64,
    /// Instructions of the host for them.
    pub instructions: u64,
}

impl World {
    /// Does the guest run?
    pub fn is_guest(&self) -> bool {
        self.inside
    }

    /// How the guest's addresses are translated. Before its first load of CR3 it is taken to be by
    /// nested paging.
    pub fn mode(&self) -> PagingMode {
        self.mode.unwrap_or(PagingMode::Nested)
    }

    /// VMRUN, when the host has executed `host` instructions.
    pub fn enter(&mut self, host: u64) {
        if let Some(begin) = self.host_at_exit.take() {
            self.paging.exits += 1;
            self.paging.instructions += host.saturating_sub(begin);
        }
        (self.inside, self.begun) = (true, None);
    }

    /// The first instruction behind VMRUN: the guest has left.
    pub fn exit(&mut self, host: u64) {
        if !self.inside {
            return;
        }
        let begun = self.begun.take();
        if begun == Some(Cause::LoadCr3) {
            // KVM intercepts loads of CR3 under shadow paging only.
            self.mode = Some(PagingMode::Shadow);
        }
        self.inside = false;
        self.host_at_exit = (begun != Some(Cause::Other)).then_some(host);
        self.exits += 1;
    }

    /// The guest is about to execute such an instruction.
    pub fn begins(&mut self, cause: Cause) {
        self.begun = Some(cause);
    }

    /// The instruction behind it: the guest did not leave.
    pub fn goes_on(&mut self) {
        if self.begun == Some(Cause::LoadCr3) {
            self.mode = Some(PagingMode::Nested);
        }
        self.begun = None;
    }

    /// The host's CPU halts, turns to another process or to a program, or was interrupted: the exit
    /// was not for paging, or its cost is not only that.
    pub fn turns_away(&mut self) {
        self.host_at_exit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_what_happens_to_loads_of_cr3() {
        let mut world = World::default();
        assert_eq!(world.mode(), PagingMode::Nested);
        world.enter(0);
        world.begins(Cause::LoadCr3);
        world.exit(10);
        assert_eq!(world.mode(), PagingMode::Shadow);
        // KVM has loaded it: the guest goes on behind the instruction.
        world.enter(20);
        world.goes_on();
        assert_eq!(world.mode(), PagingMode::Shadow);
        world.begins(Cause::LoadCr3);
        world.goes_on();
        assert_eq!(world.mode(), PagingMode::Nested);
    }

    #[test]
    fn paging_exits_are_those_that_nothing_else_explains() {
        let mut world = World::default();
        let paging = |world: &World| (world.exits, world.paging.exits, world.paging.instructions);
        world.enter(100);
        world.exit(100);
        world.enter(150);
        assert_eq!(paging(&world), (1, 1, 50));
        // An interrupt came, or another process ran.
        world.exit(150);
        world.turns_away();
        world.enter(1000);
        assert_eq!(paging(&world), (2, 1, 50));
        // The guest wrote a register, which KVM lets pass, and then took a fault.
        world.begins(Cause::Other);
        world.goes_on();
        world.exit(1000);
        world.enter(1070);
        assert_eq!(paging(&world), (3, 2, 120));
        // KVM does not let this one pass.
        world.begins(Cause::Other);
        world.exit(1070);
        world.enter(1100);
        assert_eq!(paging(&world), (4, 2, 120));
        world.begins(Cause::LoadCr3);
        world.exit(1100);
        world.enter(1107);
        assert_eq!(paging(&world), (5, 3, 127));
        // The instruction behind VMRUN runs without an exit only where VMRUN failed.
        world.exit(1107);
        world.exit(1108);
        assert_eq!(world.exits, 6);
    }
}
