//! How a workload's references spread over its page table (the DAV2M paper, figure 3).

use super::{Part, Synthetic, Workload};
use crate::error::ModelError;
use crate::step::{Step, StepSource};

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
    let mut counts = std::collections::HashMap::new();
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
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::profiles;

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
