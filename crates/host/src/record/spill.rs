//! Where the pages of a row group wait: in an unnamed file. Parquet stores a column's pages
//! together, while rows come with all their columns; pages in memory would limit the size of a row
//! group.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use parquet::arrow::arrow_writer::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::errors::{ParquetError, Result};

/// Gives the columns of each row group one file.
#[derive(Debug)]
pub struct Spill {
    path: PathBuf,
    /// The file of the columns that are being written.
    current: Mutex<Weak<Waiting>>,
}

impl Spill {
    /// Each file is at this path only for the moment in which it is made.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            current: Mutex::default(),
        }
    }

    fn file(&self) -> Result<Arc<Waiting>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = current.upgrade() {
            return Ok(file);
        }
        // The columns of the previous row group are gone, and their file with them.
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&self.path)?;
        fs::remove_file(&self.path)?;
        let file = Arc::new(Waiting {
            file,
            end: AtomicU64::new(0),
        });
        *current = Arc::downgrade(&file);
        Ok(file)
    }
}

impl PageStoreFactory for Spill {
    fn create(&self, _column: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        Ok(Box::new(Pages {
            waiting: self.file()?,
            extents: Vec::new(),
        }))
    }
}

struct Waiting {
    file: File,
    end: AtomicU64,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Waiting")
    }
}

/// The pages of one column.
struct Pages {
    waiting: Arc<Waiting>,
    /// The place and the length of each page.
    extents: Vec<(u64, usize)>,
}

impl PageStore for Pages {
    fn put(&mut self, page: Bytes) -> Result<PageKey> {
        let start = self
            .waiting
            .end
            .fetch_add(page.len() as u64, Ordering::Relaxed);
        self.waiting.file.write_all_at(&page, start)?;
        self.extents.push((start, page.len()));
        Ok(PageKey::new(self.extents.len() as u64 - 1))
    }

    fn take(&mut self, key: PageKey) -> Result<Bytes> {
        let extent = usize::try_from(key.get())
            .ok()
            .and_then(|at| self.extents.get(at));
        let (start, length) = *extent
            .ok_or_else(|| ParquetError::General(format!("no page has the key {}", key.get())))?;
        let mut page = vec![0; length];
        self.waiting.file.read_exact_at(&mut page, start)?;
        Ok(page.into())
    }
}
