//! Kernels that were compiled and verified recently.

use crate::search::trial::Rejected;

/// Enough for the winner, a candidate, and the kernels of the last measurement.
const MOST: usize = 8;

/// The most recently used kernels, the latest last.
pub struct Recent<P, K>(Vec<(P, K)>);

impl<P: Copy + PartialEq, K> Recent<P, K> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// The kernel for these parameters, which is made if it is missing.
    pub fn get_or_make(
        &mut self,
        parameters: &P,
        make: impl FnOnce(&P) -> Result<K, Rejected>,
    ) -> Result<&K, Rejected> {
        let at = self.0.iter().position(|(known, _)| known == parameters);
        let entry = match at {
            Some(at) => self.0.remove(at),
            None => (*parameters, make(parameters)?),
        };
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(entry);
        let last = self.0.len() - 1;
        Ok(&self.0[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::new();
        let mut compiled = Vec::new();
        for parameters in [0, 1, 0, 2, 0, 3, 4, 0, 5, 6, 7, 8, 0, 1] {
            let make = |one: &u32| {
                compiled.push(*one);
                Ok(*one * 10)
            };
            let kernel = recent.get_or_make(&parameters, make).unwrap();
            assert_eq!(*kernel, parameters * 10);
        }
        assert_eq!(compiled, [0, 1, 2, 3, 4, 5, 6, 7, 8, 1]);
        let refused = recent.get_or_make(&99, |_| Err(Rejected("no".into())));
        assert_eq!(refused, Err(Rejected("no".into())));
    }
}
