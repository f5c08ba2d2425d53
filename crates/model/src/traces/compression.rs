//! Compressed files, known by their first bytes and decompressed as a stream.

use std::io::{self, BufReader, Cursor, Read};

use liblzma::stream::{CONCATENATED, Stream};

/// The most memory that the xz decoder may take, in bytes: `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 256 * 1024 * 1024;
/// Base-2 logarithm of the largest accepted zstd window: the default limit of `zstd` itself.
const ZSTD_WINDOW: u32 = 27;
/// The longest magic number, in bytes.
const MAGIC: usize = 6;

/// How a file is compressed.
enum Compression {
    Plain,
    /// gzip, RFC 1952; successive members are one stream.
    Gzip,
    /// xz; successive streams are one stream.
    Xz,
    /// Zstandard, RFC 8878; successive frames are one stream.
    Zstd,
}

impl Compression {
    /// The compression that begins with these bytes.
    fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// The decompressed stream of `reader`. It reads no further than the caller asks, plus one buffer;
/// a decoder's memory is bounded whatever the file claims.
pub(crate) fn decompress(mut reader: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(MAGIC);
    reader.by_ref().take(MAGIC as u64).read_to_end(&mut magic)?;
    let compression = Compression::of(&magic);
    let whole = Cursor::new(magic).chain(reader);
    Ok(match compression {
        Compression::Plain => Box::new(whole),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(whole))),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
            let reader = BufReader::new(whole);
            Box::new(liblzma::bufread::XzDecoder::new_stream(reader, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::new(whole)?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Box::new(decoder)
        }
    })
}
