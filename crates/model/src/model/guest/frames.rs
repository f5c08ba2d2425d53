//! The guest's frame allocator.

use std::collections::HashMap;

use crate::error::ModelError;
use crate::model::address::Gfn;

/// Hands out guest frames in order and reuses the frames freed last, as a kernel's free lists do.
#[derive(Debug)]
pub(super) struct Frames {
    next: u64,
    limit: u64,
    /// Free frames as runs (first, end), the run freed last at the end: frames freed in order, and
    /// the gaps before aligned runs, take one element.
    free: Vec<(u64, u64)>,
    /// Aligned runs of frames, by their length.
    free_runs: HashMap<u64, Vec<Gfn>>,
    /// Frames mapped more than once, with their number of mappings.
    shared: HashMap<Gfn, u32>,
}

impl Frames {
    /// Frame 0 stays unused, so that 0 is not a valid table.
    pub(super) fn new(memory_bytes: u64) -> Self {
        let limit = memory_bytes >> crate::model::address::PAGE_SHIFT;
        let (free, free_runs, shared) = (Vec::new(), HashMap::new(), HashMap::new());
        Self {
            next: 1,
            limit,
            free,
            free_runs,
            shared,
        }
    }

    pub(super) fn take(&mut self) -> Result<Gfn, ModelError> {
        let Some((first, end)) = self.free.last_mut() else {
            return self.extend(1, 1);
        };
        *end -= 1;
        let (frame, empty) = (Gfn(*end), first == end);
        if empty {
            self.free.pop();
        }
        Ok(frame)
    }

    /// Takes `count` consecutive frames, aligned to `count` (a power of two).
    pub(super) fn take_run(&mut self, count: u64) -> Result<Gfn, ModelError> {
        if count == 1 {
            return self.take();
        }
        match self.free_runs.get_mut(&count).and_then(Vec::pop) {
            Some(frame) => Ok(frame),
            None => self.extend(count, count),
        }
    }

    /// Drops one mapping of a run; the frames are free when it was the last.
    pub(super) fn drop_run(&mut self, frame: Gfn, count: u64) {
        if let Some(mappings) = self.shared.get_mut(&frame) {
            *mappings -= 1;
            if *mappings == 1 {
                self.shared.remove(&frame);
            }
        } else if count == 1 {
            self.release(frame.0, frame.0 + 1);
        } else {
            self.free_runs.entry(count).or_default().push(frame);
        }
    }

    /// Adds one mapping of a run.
    pub(super) fn share(&mut self, frame: Gfn) {
        *self.shared.entry(frame).or_insert(1) += 1;
    }

    pub(super) fn is_shared(&self, frame: Gfn) -> bool {
        self.shared.contains_key(&frame)
    }

    pub(super) fn shared(&self) -> usize {
        self.shared.len()
    }

    /// Frees the single frames from `first` to before `end`.
    fn release(&mut self, first: u64, end: u64) {
        match self.free.last_mut() {
            _ if first == end => {}
            Some(last) if last.1 == first => last.1 = end,
            _ => self.free.push((first, end)),
        }
    }

    fn extend(&mut self, count: u64, align: u64) -> Result<Gfn, ModelError> {
        let first = self.next.next_multiple_of(align);
        let end = first.saturating_add(count);
        if end > self.limit {
            let memory_bytes = self.limit << crate::model::address::PAGE_SHIFT;
            return Err(ModelError::OutOfMemory { memory_bytes });
        }
        self.release(self.next, first);
        self.next = end;
        Ok(Gfn(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_freed_last_come_back_first_and_memory_ends() {
        let mut frames = Frames::new(5 << 12);
        let taken: Vec<_> = (0..4).map(|_| frames.take().unwrap()).collect();
        assert_eq!(taken, [Gfn(1), Gfn(2), Gfn(3), Gfn(4)]);
        assert_eq!(
            frames.take(),
            Err(ModelError::OutOfMemory {
                memory_bytes: 5 << 12
            })
        );
        frames.drop_run(Gfn(2), 1);
        assert_eq!(frames.take(), Ok(Gfn(2)));
    }

    #[test]
    fn a_shared_frame_is_free_after_its_last_mapping() {
        let mut frames = Frames::new(2 << 12);
        let frame = frames.take().unwrap();
        frames.share(frame);
        frames.drop_run(frame, 1);
        assert!(!frames.is_shared(frame));
        assert!(frames.take().is_err());
        frames.drop_run(frame, 1);
        assert_eq!(frames.take(), Ok(frame));
    }

    #[test]
    fn runs_are_aligned_and_leave_the_gap_to_single_frames() {
        let mut frames = Frames::new(1 << 24);
        assert_eq!(frames.take_run(512), Ok(Gfn(512)));
        assert_eq!(frames.take(), Ok(Gfn(511)));
    }
}
