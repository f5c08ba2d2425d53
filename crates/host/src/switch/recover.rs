//! Finishing a switch that was killed.

use std::path::Path;
use std::time::Duration;

use crate::switch::Observer;
use crate::switch::error::SwitchError;
use crate::switch::journal::Journal;
use crate::switch::report::RecoveryReport;
use crate::switch::rollback;
use crate::switch::transaction::SignalsHeldBack;

/// Bring the guests of an unfinished switch back to life; does nothing when there is no unfinished
/// switch.
///
/// Fails with `Refused` when the folder or the plan in it cannot be used, and with `Stranded` when
/// a guest cannot be brought back or the journal cannot be removed.
pub fn recover(
    state_dir: &Path,
    patience: Duration,
    observer: &mut impl Observer,
) -> Result<RecoveryReport, SwitchError> {
    let _held_back = SignalsHeldBack::new();
    let mut journal = Journal::open(state_dir)?;
    let Some((transaction, entries)) = journal.read()? else {
        return Ok(RecoveryReport {
            recovered: false,
            mode: None,
            guests: Vec::new(),
        });
    };
    observer.phase("recover");
    let stranded = |undo: String| SwitchError::Stranded {
        step: "recover".into(),
        reason: "the switch was killed".into(),
        undo,
        by_hand: rollback::by_hand(
            &transaction,
            &rollback::traces(&entries, transaction.guests.len()),
        ),
    };
    let (mode, guests) = rollback::roll_back(&transaction, &mut journal, None, patience)
        .map_err(|failure| stranded(failure.to_string()))?;
    journal
        .end()
        .map_err(|failure| stranded(failure.to_string()))?;
    Ok(RecoveryReport {
        recovered: true,
        mode: Some(mode),
        guests,
    })
}
