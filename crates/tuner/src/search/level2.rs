//! What can be tried for GEMV and GER: XUNROLL and YUNROLL.

use crate::parameters::Level2;
use crate::processor::Processor;
use crate::search::Space;
use crate::vector::Vector;

const UNROLLINGS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// A routine of level 2 on one processor.
#[derive(Debug, Clone)]
pub struct Level2Space<'a> {
    pub processor: &'a Processor,
    /// The instruction sets to try, the narrowest first.
    pub vectors: Vec<Vector>,
}

impl Space<Level2> for Level2Space<'_> {
    fn starts(&self) -> Vec<Level2> {
        let widest_first = self.vectors.iter().rev();
        let starts = widest_first.map(|vector| Level2 {
            vector: *vector,
            x_unroll: 2,
            y_unroll: 4,
        });
        self.allowed(starts)
    }

    fn lines(&self) -> usize {
        2
    }

    fn line(&self, line: usize, winner: &Level2) -> Vec<Level2> {
        self.allowed(UNROLLINGS.map(|unrolled| match line {
            0 => unrolled_by(winner, (unrolled, winner.y_unroll)),
            _ => unrolled_by(winner, (winner.x_unroll, unrolled)),
        }))
    }

    fn neighbours(&self, winner: &Level2) -> Vec<Level2> {
        let near = |value: u32| [value.saturating_sub(1), value, value + 1];
        let all = near(winner.x_unroll).map(|x| near(winner.y_unroll).map(|y| (x, y)));
        self.allowed(
            all.concat()
                .into_iter()
                .map(|each| unrolled_by(winner, each)),
        )
    }

    fn grid(&self) -> Vec<Level2> {
        let all = self.starts().into_iter().flat_map(|start| {
            let sides = UNROLLINGS.map(|x| UNROLLINGS.map(|y| (x, y))).concat();
            sides.into_iter().map(move |each| unrolled_by(&start, each))
        });
        self.allowed(all)
    }
}

impl Level2Space<'_> {
    fn allowed(&self, all: impl IntoIterator<Item = Level2>) -> Vec<Level2> {
        let valid = |one: &Level2| one.is_valid_for(self.processor).is_ok();
        all.into_iter().filter(valid).collect()
    }
}

fn unrolled_by(at: &Level2, (x_unroll, y_unroll): (u32, u32)) -> Level2 {
    Level2 {
        x_unroll,
        y_unroll,
        ..*at
    }
}
