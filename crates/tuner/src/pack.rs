//! Copies blocks of A and B into the panels that the kernel reads in order.
//!
//! A panel of width w has, for each step of K, w numbers: a column of A or a row of B. Numbers
//! beyond the matrix are zero. Where A is transposed and B is not, packing transposes.

use crate::element::Element;

/// Steps of K that are transposed at once: few enough that the written lines stay in L1.
const TRANSPOSED: usize = 64;

/// A block of a matrix, seen as `width` numbers in each of `depth` steps of K.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a, T> {
    /// The matrix from the block's first number on.
    pub data: &'a [T],
    /// The distance from one stored column to the next.
    pub leading: usize,
    /// Are the numbers of one step contiguous? Otherwise those of successive steps are.
    pub along: bool,
    /// The numbers of one step that the matrix has.
    pub width: usize,
    pub depth: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Form<T> {
    /// The numbers of one step in the panel, not counting copies.
    pub width: usize,
    /// Copies of each number, side by side.
    pub copies: usize,
    /// The factor for each number.
    pub scale: T,
}

/// Fill one panel, which has `depth` * width * copies numbers.
pub fn pack<T: Element>(panel: &mut [T], block: &Block<'_, T>, form: &Form<T>) {
    let step = form.width * form.copies;
    let rows = panel.chunks_exact_mut(step);
    if form.copies > 1 {
        for (k, row) in rows.take(block.depth).enumerate() {
            for (index, numbers) in row.chunks_exact_mut(form.copies).enumerate() {
                numbers.fill(entry(block, form, index, k));
            }
        }
    } else if block.along {
        for (k, row) in rows.take(block.depth).enumerate() {
            let start = k * block.leading;
            let (there, padding) = row.split_at_mut(block.width);
            let from = &block.data[start..start + block.width];
            if form.scale == T::ONE {
                there.copy_from_slice(from);
            } else {
                for (to, from) in there.iter_mut().zip(from) {
                    *to = *from * form.scale;
                }
            }
            padding.fill(T::ZERO);
        }
    } else {
        let mut start = 0;
        for rows in panel.chunks_mut(step * TRANSPOSED) {
            let depth = TRANSPOSED.min(block.depth.saturating_sub(start));
            transpose(rows, block, form, start, depth);
            start += depth;
        }
    }
}

fn entry<T: Element>(block: &Block<'_, T>, form: &Form<T>, index: usize, k: usize) -> T {
    if index >= block.width {
        return T::ZERO;
    }
    let at = if block.along {
        k * block.leading + index
    } else {
        index * block.leading + k
    };
    block.data[at] * form.scale
}

/// Pack four numbers of one step at once, so that stores are wide.
fn transpose<T: Element>(
    panel: &mut [T],
    block: &Block<'_, T>,
    form: &Form<T>,
    start: usize,
    depth: usize,
) {
    let column = |index: usize| {
        let from = index * block.leading + start;
        &block.data[from..from + depth]
    };
    let mut index = 0;
    while index + 4 <= block.width {
        let four = [0, 1, 2, 3].map(|next| column(index + next));
        let [first, second, third, fourth] = four;
        let columns = first.iter().zip(second).zip(third).zip(fourth);
        for (row, (((a, b), c), d)) in panel.chunks_exact_mut(form.width).zip(columns) {
            let to = &mut row[index..index + 4];
            to.copy_from_slice(&[*a, *b, *c, *d].map(|number| number * form.scale));
        }
        index += 4;
    }
    for index in index..form.width {
        let rows = panel.chunks_exact_mut(form.width);
        if index < block.width {
            for (row, number) in rows.zip(column(index)) {
                row[index] = *number * form.scale;
            }
        } else {
            rows.for_each(|row| row[index] = T::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_give_the_same_panel_with_zeros_beside() {
        let (width, depth) = (5, 150);
        let number = |index: usize, k: usize| f64::from(u32::try_from(index * 1000 + k).unwrap());
        let along: Vec<f64> = (0..depth)
            .flat_map(|k| (0..width + 2).map(move |index| number(index, k)))
            .collect();
        let across: Vec<f64> = (0..width)
            .flat_map(|index| (0..depth + 3).map(move |k| number(index, k)))
            .collect();
        for copies in [1, 2] {
            let form = Form {
                width: 7,
                copies,
                scale: 2.0,
            };
            let blocks = [(&along, width + 2, true), (&across, depth + 3, false)];
            for (data, leading, along) in blocks {
                let block = Block {
                    data,
                    leading,
                    along,
                    width,
                    depth,
                };
                let mut panel = vec![f64::NAN; depth * 7 * copies];
                pack(&mut panel, &block, &form);
                for (at, found) in panel.iter().enumerate() {
                    let (k, index) = (at / (7 * copies), at / copies % 7);
                    let want = if index < width {
                        2.0 * number(index, k)
                    } else {
                        0.0
                    };
                    assert_eq!(
                        found.to_bits(),
                        want.to_bits(),
                        "{along} {copies} {k} {index}"
                    );
                }
            }
        }
    }
}
