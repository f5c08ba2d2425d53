//! Files that go over the channel: the operations `push` and `pull`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod};
use serde::{Deserialize, Deserializer, Serialize};

use crate::launch::make_folder;
use vtax_sys::reason;

/// The most bytes that one `pull` answers: in base64 they fit a frame.
pub const MAX_PULL_BYTES: u64 = 512 << 10;
/// The most bytes that the names of one `list` take: in JSON, in which a byte may become six, they
/// fit a frame together with the sizes.
const MAX_LISTED_BYTES: usize = 128 << 10;
/// What a file takes in the answer besides its name.
const LISTED_BYTES: usize = 24;
/// The permission bits of a pushed file when none are asked for.
const DEFAULT_PERMISSIONS: u32 = 0o600;

/// The fields of `push`.
#[derive(Debug, PartialEq, Deserialize)]
pub struct PushRequest {
    /// The file, absolute; folders above it are made.
    pub path: PathBuf,
    /// The bytes to write.
    #[serde(deserialize_with = "bytes")]
    pub data: Vec<u8>,
    /// Permission bits; `None`: 0600 for a new file, else unchanged.
    pub mode: Option<u32>,
    /// The offset to write at; 0 replaces the file.
    #[serde(default)]
    pub offset: u64,
}

/// What `push` answers.
#[derive(Debug, PartialEq, Serialize)]
pub struct PushAnswer {
    /// The file's size after writing.
    pub size: u64,
}

/// The fields of `pull`.
#[derive(Debug, PartialEq, Deserialize)]
pub struct PullRequest {
    /// The file, absolute.
    pub path: PathBuf,
    /// The offset to read from.
    #[serde(default)]
    pub offset: u64,
    /// Most bytes to answer.
    pub limit: u64,
}

/// What `pull` answers.
#[derive(Debug, PartialEq, Serialize)]
pub struct PullAnswer {
    /// The bytes that were read, in base64.
    pub data: String,
    /// The file's size as the kernel gives it; 0 in `/proc`.
    pub size: u64,
    /// There was nothing after `data`.
    pub eof: bool,
}

/// The fields of `list`.
#[derive(Debug, PartialEq, Deserialize)]
pub struct ListRequest {
    /// The folder, absolute.
    pub path: PathBuf,
}

/// What `list` answers.
#[derive(Debug, PartialEq, Serialize)]
pub struct ListAnswer {
    /// The path below the folder and the size in bytes of each regular file in it.
    pub files: BTreeMap<String, u64>,
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

impl PushRequest {
    /// Check what the types cannot: the path and the mode.
    ///
    /// Fails, naming the field, when the path is not absolute or holds a NUL character, or when the
    /// mode has more than 12 bits.
    pub fn check(&self) -> Result<(), String> {
        check_path(&self.path)?;
        match self.mode {
            Some(bits) if bits > 0o7777 => Err(format!("mode: {bits} has more than 12 bits")),
            _ => Ok(()),
        }
    }
}

impl PullRequest {
    /// Check what the types cannot: the path and the limit.
    ///
    /// Fails, naming the field, when the path is not absolute or holds a NUL character, or when the
    /// limit is not from 1 to [`MAX_PULL_BYTES`].
    pub fn check(&self) -> Result<(), String> {
        check_path(&self.path)?;
        if (1..=MAX_PULL_BYTES).contains(&self.limit) {
            Ok(())
        } else {
            let limit = self.limit;
            Err(format!("limit: {limit} is not in 1 to {MAX_PULL_BYTES}"))
        }
    }
}

impl ListRequest {
    /// Check what the types cannot: the path.
    ///
    /// Fails when the path is not absolute or holds a NUL character.
    pub fn check(&self) -> Result<(), String> {
        check_path(&self.path)
    }
}

fn check_path(path: &Path) -> Result<(), String> {
    if path.is_absolute() && !path.to_string_lossy().contains('\0') {
        Ok(())
    } else {
        Err(format!("path: '{}' is not absolute", path.display()))
    }
}

/// Write a piece of a file; the error names what failed and why.
///
/// The first piece replaces what exists, so that even a running program can be replaced.
pub fn push(request: &PushRequest) -> Result<PushAnswer, String> {
    let path = &request.path;
    let refused = |call: &str, error: &io::Error| explain(call, path, error);
    let (file, permissions) = if request.offset == 0 {
        let file = create(path)?;
        (file, Some(request.mode.unwrap_or(DEFAULT_PERMISSIONS)))
    } else {
        let mut options = OpenOptions::new();
        (open(options.write(true), path)?, request.mode)
    };
    let size = size(&file, path)?;
    if request.offset > size {
        let offset = request.offset;
        return Err(format!(
            "write {}: offset {offset} is beyond its {size} bytes",
            path.display()
        ));
    }
    if let Some(permissions) = permissions {
        fchmod(&file, Mode::from_bits_truncate(permissions))
            .map_err(|errno| refused("chmod", &errno.into()))?;
    }
    file.write_all_at(&request.data, request.offset)
        .map_err(|error| refused("write", &error))?;
    let size = self::size(&file, path)?;
    Ok(PushAnswer { size })
}

/// Read a piece of a file; the error names what failed and why.
pub fn pull(request: &PullRequest) -> Result<PullAnswer, String> {
    let path = &request.path;
    let mut file = open(OpenOptions::new().read(true), path)?;
    let size = size(&file, path)?;
    let mut data = Vec::new();
    file.seek(SeekFrom::Start(request.offset))
        .map_err(|error| explain("seek", path, &error))?;
    // Read one byte more than is answered, to see whether there is more.
    file.take(request.limit + 1)
        .read_to_end(&mut data)
        .map_err(|error| explain("read", path, &error))?;
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let eof = data.len() <= limit;
    data.truncate(limit);
    Ok(PullAnswer {
        data: STANDARD.encode(data),
        size,
        eof,
    })
}

fn create(path: &Path) -> Result<File, String> {
    if let Some(folder) = path.parent() {
        make_folder(folder).map_err(|error| explain("mkdir", folder, &error))?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {
            fs::remove_file(path).map_err(|error| explain("remove", path, &error))?;
        }
        // Anything other than a file exists, and is refused below.
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(DEFAULT_PERMISSIONS)
        .open(path)
        .map_err(|error| explain("create", path, &error))
}

/// The regular files in a folder and below, without following links; names that are not UTF-8 are
/// left out.
///
/// Fails when a folder cannot be read, or when the files are too many for one frame.
pub fn list(request: &ListRequest) -> Result<ListAnswer, String> {
    let mut files = BTreeMap::new();
    let mut name_bytes = 0;
    let mut folders = vec![request.path.clone()];
    while let Some(folder) = folders.pop() {
        let refused = |error: io::Error| explain("list", &folder, &error);
        for entry in fs::read_dir(&folder).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let metadata = entry.metadata().map_err(refused)?;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            let path = entry.path();
            let name = path.strip_prefix(&request.path).ok().and_then(Path::to_str);
            if let (true, Some(name)) = (metadata.is_file(), name) {
                name_bytes += name.len() + LISTED_BYTES;
                files.insert(name.to_owned(), metadata.len());
            }
            if name_bytes.max(folders.len() * LISTED_BYTES) > MAX_LISTED_BYTES {
                let shown = request.path.display();
                return Err(format!("list {shown}: there are too many files in it"));
            }
        }
    }
    Ok(ListAnswer { files })
}

/// Open a regular file; a pipe or device is refused without waiting for it.
fn open(options: &mut OpenOptions, path: &Path) -> Result<File, String> {
    let file = options
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)
        .map_err(|error| explain("open", path, &error))?;
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        Ok(_) => Err(format!("open {}: it is not a regular file", path.display())),
        Err(error) => Err(explain("stat", path, &error)),
    }
}

fn size(file: &File, path: &Path) -> Result<u64, String> {
    let metadata = file
        .metadata()
        .map_err(|error| explain("stat", path, &error))?;
    Ok(metadata.len())
}

fn explain(call: &str, path: &Path, error: &io::Error) -> String {
    format!("{call} {}: {}", path.display(), reason(error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use proptest::prelude::*;

    use super::*;

    fn piece(path: &Path, data: &[u8], offset: u64) -> PushRequest {
        PushRequest {
            path: path.into(),
            data: data.into(),
            mode: None,
            offset,
        }
    }

    fn pulled(path: &Path, offset: u64, limit: u64) -> (Vec<u8>, u64, bool) {
        let path = path.into();
        let answer = pull(&PullRequest {
            path,
            offset,
            limit,
        })
        .unwrap();
        (
            STANDARD.decode(answer.data).unwrap(),
            answer.size,
            answer.eof,
        )
    }

    proptest! {
        #[test]
        fn what_is_pushed_in_pieces_is_pulled_in_others(
            data in proptest::collection::vec(any::<u8>(), 1..2000),
            push_size in 1_usize..700,
            pull_size in 1_u64..700,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a/b/file");
            let mut offset = 0;
            for part in data.chunks(push_size) {
                offset = push(&piece(&path, part, offset)).unwrap().size;
            }
            let mut found = Vec::new();
            loop {
                let (part, size, eof) = pulled(&path, found.len() as u64, pull_size);
                prop_assert_eq!(size, data.len() as u64);
                found.extend(part);
                if eof {
                    break;
                }
            }
            prop_assert_eq!(found, data);
        }
    }

    #[test]
    fn offset_0_replaces_a_file_and_sets_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        push(&piece(&path, b"long content", 0)).unwrap();
        let running = File::open(&path).unwrap();
        let permissions = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(permissions(&path), 0o600);
        let mut short = piece(&path, b"short", 0);
        short.mode = Some(0o755);
        assert_eq!(push(&short).unwrap().size, 5);
        assert_eq!(permissions(&path), 0o755);
        assert_eq!(running.metadata().unwrap().len(), 12, "the old one is kept");
        push(&piece(&path, b"er", 5)).unwrap();
        assert_eq!(
            (permissions(&path), pulled(&path, 0, 99).0),
            (0o755, b"shorter".to_vec())
        );
    }

    #[test]
    fn what_is_no_file_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("/etc/passwd", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        for (name, call) in [("link", "create"), ("pipe", "create"), ("file/x", "mkdir")] {
            fs::write(path("file"), "").unwrap();
            let error = push(&piece(&path(name), b"x", 0)).unwrap_err();
            assert!(error.starts_with(call), "{error}");
        }
        let error = push(&piece(&path("file"), b"x", 1)).unwrap_err();
        assert!(error.ends_with("offset 1 is beyond its 0 bytes"), "{error}");
        for name in ["pipe", ".", "absent"] {
            let request = PullRequest {
                path: path(name),
                offset: 0,
                limit: 1,
            };
            assert!(pull(&request).unwrap_err().starts_with("open "), "{name}");
        }
    }

    #[test]
    fn files_of_the_kernel_have_content_but_no_size() {
        let (data, size, eof) = pulled(Path::new("/proc/self/status"), 0, MAX_PULL_BYTES);
        assert!(data.starts_with(b"Name:"));
        assert_eq!((size, eof), (0, true));
    }
}
