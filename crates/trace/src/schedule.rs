//! Which intervals of a long run are recorded.

/// The seed of all schedules, so that the same run is sampled in the same way.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two successive intervals of each period are recorded, at a random place in it. The first fills
/// the model's TLBs and caches, the second is measured. The place is random because a program that
/// repeats itself would otherwise always be met at the same point.
pub struct Schedule {
    period: u64,
    at: u64,
    chosen: u64,
    random: u64,
}

impl Schedule {
    /// Two of `period` successive intervals are recorded.
    pub fn new(period: u64) -> Self {
        let mut schedule = Self {
            period: period.max(2),
            at: 0,
            chosen: 0,
            random: SEED,
        };
        schedule.choose();
        schedule
    }

    /// Is the current interval recorded?
    pub fn recorded(&self) -> bool {
        self.at == self.chosen || self.at == self.chosen + 1
    }

    /// Go on to the next interval.
    pub fn advance(&mut self) {
        self.at += 1;
        if self.at == self.period {
            self.at = 0;
            self.choose();
        }
    }

    fn choose(&mut self) {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.chosen = self.random % (self.period - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_two_recorded_intervals_at_changing_places() {
        let mut schedule = Schedule::new(10);
        let mut places = [0; 9];
        for _ in 0..1000 {
            let mut recorded = Vec::new();
            for at in 0..10 {
                if schedule.recorded() {
                    recorded.push(at);
                }
                schedule.advance();
            }
            assert_eq!(recorded, [recorded[0], recorded[0] + 1]);
            places[recorded[0]] += 1;
        }
        assert!(
            places.iter().all(|count| (60..140).contains(count)),
            "{places:?}"
        );
    }

    #[test]
    fn a_period_of_two_records_everything() {
        let mut schedule = Schedule::new(2);
        for _ in 0..5 {
            assert!(schedule.recorded());
            schedule.advance();
        }
    }
}
