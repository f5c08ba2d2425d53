//! Who runs: the guest, KVM for it, or others of the emulated host.

use vtax_sys::kvm::PagingMode;

/// The changes between guest and host, as the instructions tell them.
#[derive(Debug, Default)]
pub struct World {
    inside: bool,
    /// The guest has begun to load CR3, and nothing has run since.
    loading: bool,
    mode: Option<PagingMode>,
    /// What the host had executed at the exit; `None`: since then its CPU left the thread of the
    /// guest's CPU.
    host_at_exit: Option<u64>,
    pub exits: u64,
    /// Instructions of the host from exits until the guest went on or its thread lost the CPU.
    pub vmm_instructions: u64,
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
        self.leave_thread(host);
        (self.inside, self.loading) = (true, false);
    }

    /// The first instruction behind VMRUN: the guest has left.
    pub fn exit(&mut self, host: u64) {
        if !self.inside {
            return;
        }
        if self.loading {
            // KVM intercepts loads of CR3 under shadow paging only.
            self.mode = Some(PagingMode::Shadow);
        }
        (self.inside, self.loading) = (false, false);
        self.host_at_exit = Some(host);
        self.exits += 1;
    }

    /// The guest is about to load CR3.
    pub fn load_begins(&mut self) {
        self.loading = true;
    }

    /// The instruction behind the guest's load of CR3.
    pub fn load_ended(&mut self) {
        if self.loading {
            self.mode = Some(PagingMode::Nested);
        }
        self.loading = false;
    }

    /// The host's CPU turns to another process, or halts.
    pub fn leave_thread(&mut self, host: u64) {
        if let Some(begin) = self.host_at_exit.take() {
            self.vmm_instructions += host.saturating_sub(begin);
        }
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
        world.load_begins();
        world.exit(10);
        assert_eq!(world.mode(), PagingMode::Shadow);
        // KVM has loaded it: the guest goes on behind the instruction.
        world.enter(20);
        world.load_ended();
        assert_eq!(world.mode(), PagingMode::Shadow);
        world.load_begins();
        world.load_ended();
        assert_eq!(world.mode(), PagingMode::Nested);
    }

    #[test]
    fn the_hosts_work_for_the_guest_ends_where_its_thread_does() {
        let mut world = World::default();
        world.enter(100);
        world.exit(100);
        world.enter(150);
        assert_eq!((world.exits, world.vmm_instructions), (1, 50));
        world.exit(150);
        world.leave_thread(170);
        // Another process runs in between.
        world.leave_thread(900);
        world.enter(1000);
        assert_eq!((world.exits, world.vmm_instructions), (2, 70));
        // The instruction behind VMRUN runs without an exit only where VMRUN failed.
        world.exit(1001);
        world.exit(1002);
        assert_eq!(world.exits, 3);
    }
}
