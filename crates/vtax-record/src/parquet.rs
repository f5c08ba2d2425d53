//! The finished rows: `intervals.parquet`, from the stream.

use std::fs::File;
use std::path::Path;

use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::stream::Batches;

/// Rows of one row group: bounds the memory of writer and reader.
const GROUP_ROWS: usize = 8192;
/// Columns that only grow, or nearly so.
const GROWING: [&str; 6] = [
    "seq",
    "interval",
    "time_ns",
    "tsc",
    "time_enabled",
    "time_running",
];

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Rows.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Write all whole batches of a stream; the file appears under its name when it is complete.
pub fn finish(stream: &Path, target: &Path) -> Result<Written, ParquetError> {
    let batches = Batches::open(stream)?;
    let fresh = target.with_extension("parquet.tmp");
    let properties = properties(&batches.schema())?;
    let mut writer =
        ArrowWriter::try_new(File::create(&fresh)?, batches.schema(), Some(properties))?;
    let mut rows = 0;
    for batch in batches {
        rows += batch.num_rows() as u64;
        writer.write(&batch)?;
    }
    writer.close()?;
    let bytes = std::fs::metadata(&fresh)?.len();
    std::fs::rename(&fresh, target)?;
    Ok(Written { rows, bytes })
}

fn properties(schema: &SchemaRef) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        // Both are kept for the whole file until its end: memory that grows with the recording.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for field in schema.fields() {
        if field.data_type() == &DataType::UInt64 && GROWING.contains(&field.name().as_str()) {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}
