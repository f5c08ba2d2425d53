//! How a workload's references spread over its page table (the DAV2M paper, figure 3).

use std::collections::HashMap;

use super::{Part, Synthetic, Workload};
use crate::error::ModelError;
use crate::model::address::USER_END;
use crate::step::{Operation, Step, StepSource};

/// Base-2 logarithm of what one entry of a 32-bit guest's upper table covers: 4 MiB.
const REGION_SHIFT: u32 = 22;

/// References to each touched region of 4 MiB, most referenced first.
///
/// About `references` references are drawn from the steady parts of the phases, by their share of
/// the instructions. The sum is the number of drawn references.
///
/// # Errors
/// [`ModelError`], naming the field, for an invalid workload.
pub fn locality(workload: &Workload, references: u64, seed: u64) -> Result<Vec<u64>, ModelError> {
    let total = workload.instructions();
    let mut instructions = vec![0.0; workload.phase.len()];
    for index in workload.order() {
        instructions[index] += workload.phase[index].instructions;
    }
    let mut counts = HashMap::new();
    for (index, own) in instructions.into_iter().enumerate() {
        let wanted = references as f64 * own / total;
        if workload.phase[index].references_per_instruction == 0.0 {
            continue;
        }
        let mut source = Synthetic::new(workload, Part::Phase(index), seed)?;
        let mut drawn = 0.0;
        while drawn < wanted {
            source.next_step()?;
            if source.entering() {
                continue;
            }
            let Some(Step::References { references, .. }) = source.next_step()? else {
                continue;
            };
            for reference in references {
                *counts
                    .entry(reference.address().0 >> REGION_SHIFT)
                    .or_insert(0_u64) += 1;
            }
            drawn += references.len() as f64;
        }
    }
    Ok(busiest_first(counts.into_values()))
}

/// The same for the first `references` references of a trace to user addresses, whole blocks of
/// them. Regions of different processes are different regions.
///
/// # Errors
/// [`ModelError`] for a damaged trace.
pub fn locality_of_trace(
    trace: &mut dyn StepSource,
    references: u64,
) -> Result<Vec<u64>, ModelError> {
    let mut counts = HashMap::new();
    let (mut space, mut followed) = (0, 0);
    while followed < references {
        let Some(step) = trace.next_step()? else {
            break;
        };
        match step {
            Step::Operation(Operation::LoadCr3 { root, .. }) => space = root.0,
            Step::Operation(Operation::Switch { process }) => space = u64::from(process),
            Step::References { references, .. } => {
                let user = references.iter().map(|reference| reference.address().0);
                for address in user.filter(|address| *address < USER_END) {
                    let region = (space, address >> REGION_SHIFT);
                    *counts.entry(region).or_insert(0_u64) += 1;
                    followed += 1;
                }
            }
            _ => {}
        }
    }
    Ok(busiest_first(counts.into_values()))
}

/// The counts in falling order.
pub fn busiest_first(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut counts: Vec<u64> = counts.collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::{Gfn, Gva, Reference};
    use crate::workload::profiles;

    /// Two processes that use the same addresses, and a kernel.
    struct Told(usize, [Reference; 3]);

    impl StepSource for Told {
        fn next_step(&mut self) -> Result<Option<Step<'_>>, ModelError> {
            self.0 += 1;
            Ok(match self.0 {
                1 | 3 => Some(Step::Operation(Operation::LoadCr3 {
                    root: Gfn(self.0 as u64),
                    preserve: false,
                })),
                2 | 4 | 5 => Some(Step::References {
                    references: &self.1,
                    instructions: 9,
                    base_cpi: 1.0,
                }),
                _ => None,
            })
        }
    }

    #[test]
    fn a_trace_has_the_regions_of_each_process_and_none_of_the_kernel() {
        let kernel = Reference::new(Gva(0xffff_8880_0000_0000), false);
        let user = [0x40_0000, 0x7f_fff8].map(|address| Reference::new(Gva(address), false));
        let told = || Told(0, [user[0], kernel, user[1]]);
        assert_eq!(
            locality_of_trace(&mut told(), u64::MAX).unwrap(),
            [4, 2],
            "both addresses are in the second region of 4 MiB"
        );
        assert_eq!(locality_of_trace(&mut told(), 2).unwrap(), [2]);
    }

    fn covered(name: &str) -> f64 {
        let counts = locality(&profiles::by_name(name).unwrap(), 200_000, 1).unwrap();
        let fifth = counts.len().div_ceil(5);
        counts[..fifth].iter().sum::<u64>() as f64 / counts.iter().sum::<u64>() as f64
    }

    #[test]
    fn a_fifth_of_the_table_covers_most_of_mcf_and_a_fifth_of_random_references() {
        assert!(covered("mcf") > 0.8, "{}", covered("mcf"));
        assert!(
            (covered("random") - 0.2).abs() < 0.02,
            "{}",
            covered("random")
        );
    }
}
