//! What both references share.

use vtax_model::model::address::{Gfn, Gva};
use vtax_model::model::cost_account::CostAccount;
use vtax_model::model::guest::GuestTables;
use vtax_model::model::guest_event::{GuestEvent, PartialWalk, Translation};

pub const LEVELS: u8 = 4;

/// A guest table and its level.
pub type Key = (Gfn, u8);

/// What a walk found, to be compared.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub failed_depth: u8,
    pub nested_from: u8,
    pub writable: bool,
    pub flushed: bool,
}

/// What the shadow tables are compared with.
pub trait Expected {
    fn pages(&self) -> usize;
    fn clear(&mut self, clock: u64);
    fn fault(&mut self, walk: &PartialWalk, account: &mut CostAccount<'_>);
    fn interval(&mut self, tables: &GuestTables);
    fn event(&mut self, event: &GuestEvent, tables: &GuestTables, account: &mut CostAccount<'_>);
    fn resolve(
        &mut self,
        address: Gva,
        found: &Translation,
        write: bool,
        tables: &GuestTables,
        account: &mut CostAccount<'_>,
    ) -> Outcome;
}

pub fn key(found: &Translation, level: u8) -> Key {
    (found.tables[usize::from(LEVELS - level)], level)
}
