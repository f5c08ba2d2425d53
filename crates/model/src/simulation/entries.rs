//! How a native run's TLB misses and walks spread over the page tables.

use super::lane::Lane;
use super::setup::Setup;
use super::whole::Follower;
use crate::error::ModelError;
use crate::model::core::EntryCounts;
use crate::model::mode::Translating;
use crate::step::StepSource;

/// Follows `source` natively and counts, per page-table entry, walks for user addresses.
///
/// # Errors
/// [`ModelError`] as [`super::simulate`].
pub fn count_entries(
    source: &mut dyn StepSource,
    setup: &Setup,
) -> Result<EntryCounts, ModelError> {
    setup.check()?;
    let core = setup.core(setup.guest_page);
    let mut lane = Lane::fixed("native".to_owned(), &core, Translating::Native)?;
    lane.core.count_entries();
    let mut follower = Follower::new(setup, vec![lane], source.limits())?;
    while let Some(step) = source.next_step()? {
        follower.step(step)?;
    }
    let counted = follower
        .lanes
        .pop()
        .and_then(|lane| lane.core.into_entries());
    Ok(counted.unwrap_or_default())
}
