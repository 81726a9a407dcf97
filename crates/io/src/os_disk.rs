//! `OsDisk`: a directory of the operating system behind the `Disk` trait.
//!
//! Rules: every error names the file and the operation; ENOSPC and EDQUOT are `NoSpace`, EROFS is
//! `ReadOnlyMedia`, EACCES and EPERM are `Denied`: whoever may not write may be the neighbour of somebody who does.
//! Preallocation is real (fallocate), so a full disk shows when a segment is made and not
//! when a commit is written.
//! Finished files are read past the page cache where that works (block_file.rs, docs/decisions/0005); the log is written past it
//! (sector_file.rs, docs/decisions/0009), and read through it, as everything of manifest and large values.
//! Latches and I/O: none; `pread`, `pwrite`, `fdatasync` on shared descriptors.

use crate::block_file::{BlockReads, DirectIo};
use crate::disk::{Disk, DiskFile, DiskLock};
use crate::sector_file::{SectorFile, SectorWrites};
use pbxt_base::{Error, Result};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `stat` counts the room of a file in, whatever the blocks of the file system are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Mode of a directory that is made, less what the umask forbids: others have no business in it. A server's umask may leave
/// them the right to enter.
const DIRECTORY_MODE: u32 = 0o770;
/// Mode of a file that is made, less what the umask forbids (TR10): the directory may be one that others can enter.
const FILE_MODE: u32 = 0o660;

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDisk {
    directory: PathBuf,
    /// The directory itself, for its syncs: none of them fails for want of a descriptor, which would pass while a failed sync is final.
    names: File,
    blocks: BlockReads,
    sectors: Arc<SectorWrites>,
}

impl OsDisk {
    /// Uses `directory`; with `create` it is made if it is missing (its parent must exist).
    pub fn open(directory: &Path, create: bool) -> Result<Self> {
        if create && !directory.exists() {
            refuse_no_place(directory)?;
            DirBuilder::new()
                .mode(DIRECTORY_MODE)
                .create(directory)
                .map_err(|source| failure(directory, "create the directory", source))?;
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_directory(parent.unwrap_or(Path::new(".")))?;
        }
        let kind = std::fs::metadata(directory)
            .map_err(|source| failure(directory, "open the directory", source))?;
        if !kind.is_dir() {
            return Err(Error::NotADatabase {
                path: directory.display().to_string(),
                why: "it is not a directory".into(),
            });
        }
        let names =
            File::open(directory).map_err(|source| failure(directory, "open the directory", source))?;
        Ok(Self {
            directory: directory.to_owned(),
            names,
            blocks: BlockReads::new(DirectIo::Auto),
            sectors: SectorWrites::new(DirectIo::Auto),
        })
    }

    /// Says how blocks of finished files are to be read and how the log is to be written; `Auto` if nobody says anything.
    pub fn with_direct_io(self, wanted: DirectIo) -> Self {
        Self {
            blocks: BlockReads::new(wanted),
            sectors: SectorWrites::new(wanted),
            ..self
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Disk for OsDisk {
    fn location(&self) -> String {
        self.directory.display().to_string()
    }

    fn create(&self, name: &str, preallocate: u64) -> Result<Arc<dyn DiskFile>> {
        self.create_lacking(name, preallocate, preallocate..preallocate)
    }

    fn create_lacking(&self, name: &str, bytes: u64, lacking: Range<u64>) -> Result<Arc<dyn DiskFile>> {
        let path = self.path(name);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path);
        let file = opened.map_err(|source| failure(&path, "create", source))?;
        let made = allocate(&file, 0..lacking.start)
            .and_then(|()| file.set_len(bytes))
            .and_then(|()| allocate(&file, lacking.end..bytes));
        if let Err(source) = made {
            drop(file);
            // The half-made file is of no use to anybody; if it cannot go either, start-up removes it as an orphan.
            let _ = std::fs::remove_file(&path);
            return Err(failure(&path, "allocate space for", source));
        }
        Ok(Arc::new(OsFile {
            name: path.display().to_string(),
            file,
        }))
    }

    fn open(&self, name: &str, writable: bool) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OsFile::open(&self.path(name), writable)?))
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        let path = self.path(name);
        let plain = OsFile::open(&path, true)?;
        Ok(Arc::new(SectorFile::open(&path, plain, &self.sectors)?))
    }

    fn log_writes(&self) -> String {
        self.sectors.describe()
    }

    fn open_blocks(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        match self.blocks.open(&self.path(name))? {
            Some(file) => Ok(Arc::new(file)),
            None => self.open(name, false),
        }
    }

    fn open_past_cache(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        match self.blocks.open_beside_cache(&self.path(name))? {
            Some(file) => Ok(Arc::new(file)),
            None => self.open(name, false),
        }
    }

    fn block_reads(&self) -> String {
        self.blocks.describe()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        std::fs::remove_file(&path).map_err(|source| failure(&path, "remove", source))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let path = self.path(from);
        std::fs::rename(&path, self.path(to)).map_err(|source| failure(&path, "rename", source))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        path.try_exists()
            .map_err(|source| failure(&path, "look for", source))
    }

    fn size(&self, name: &str) -> Result<u64> {
        let path = self.path(name);
        std::fs::metadata(&path)
            .map(|metadata| metadata.len())
            .map_err(|source| failure(&path, "ask for the length of", source))
    }

    fn room(&self, name: &str) -> Result<u64> {
        let path = self.path(name);
        std::fs::metadata(&path)
            .map(|metadata| metadata.len().min(metadata.blocks() * STAT_BLOCK_BYTES))
            .map_err(|source| failure(&path, "ask for the room of", source))
    }

    fn list(&self) -> Result<Vec<String>> {
        let listing = |source| failure(&self.directory, "list", source);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(listing)? {
            names.push(entry.map_err(listing)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> Result<()> {
        sync_names(&self.directory, &self.names)
    }

    fn lock(&self, name: &str) -> Result<DiskLock> {
        let path = self.path(name);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(&path);
        let mut file = match opened {
            Err(source) if is_denied(&source) => return lock_unwritten(&path, source),
            opened => opened.map_err(|source| failure(&path, "open", source))?,
        };
        take_lock(&path, &mut file)?;
        let write = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        write.map_err(|source| failure(&path, "write", source))?;
        Ok(Box::new(file))
    }

    fn free_bytes(&self) -> Result<u64> {
        let mut name = self.directory.as_os_str().as_encoded_bytes().to_vec();
        name.push(0);
        // SAFETY: all-zero bytes are a valid `statvfs`.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: `name` ends with a zero byte, `stat` is writable; both outlive the call.
        if unsafe { libc::statvfs(name.as_ptr().cast(), &raw mut stat) } != 0 {
            return Err(failure(
                &self.directory,
                "ask for the free space of",
                io::Error::last_os_error(),
            ));
        }
        Ok(stat.f_bavail * stat.f_frsize)
    }
}

/// Takes the system's lock on the lock file, or says who has it.
fn take_lock(path: &Path, file: &mut File) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::Error(source)) => Err(failure(path, "lock", source)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Without the number the message says less; it is not worth another error.
            let _ = file.read_to_string(&mut holder);
            let pid = holder.trim();
            let holder = if pid.is_empty() {
                "another process".to_owned()
            } else {
                format!("process {pid}")
            };
            Err(Error::Locked {
                path: path.display().to_string(),
                holder,
            })
        }
    }
}

/// Locks a lock file that this user cannot write, without leaving a number in it: the user of a running server can. Only where the
/// medium cannot be written and there is no such file can nobody be writing.
fn lock_unwritten(path: &Path, denied: io::Error) -> Result<DiskLock> {
    match File::open(path) {
        Ok(mut file) => {
            take_lock(path, &mut file)?;
            Ok(Box::new(file))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound && is_read_only(&denied) => {
            Err(failure(path, "open", denied))
        }
        // Of a medium that cannot be written, too: there is a lock file, and nobody knows who has it.
        Err(_) => Err(Error::Denied {
            file: path.display().to_string(),
            op: "open",
            source: denied,
        }),
    }
}

/// A directory that is not there may have been meant to be elsewhere, or on a file system that is not mounted: only one step of its path
/// is made.
fn refuse_no_place(directory: &Path) -> Result<()> {
    let refused = |why: String| {
        Err(Error::NotADatabase {
            path: directory.display().to_string(),
            why,
        })
    };
    if let Ok(target) = std::fs::read_link(directory) {
        return refused(format!(
            "it is a link to '{}', which is not there: make that directory, or mount the file system that has it",
            target.display()
        ));
    }
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => refused(format!(
            "there is no directory '{}' to make it in: make that first, or mount the file system that has it",
            parent.display()
        )),
        _ => Ok(()),
    }
}

fn is_read_only(source: &io::Error) -> bool {
    source.raw_os_error() == Some(libc::EROFS)
}

fn is_denied(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Opens what has to be a file (rule F16): a pipe would be waited for, and a device has no end. It is looked at first: `O_NONBLOCK` would not
/// wait either, but some systems take it for a wish that reads of files through a ring do not wait.
pub(crate) fn open_file(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return options.open(path);
    }
    let what = if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    };
    Err(io::Error::other(format!("it is a {what}, and no file")))
}

/// Opens a file for reading, with the errors of `OsDisk`.
pub fn open_to_read(path: &Path) -> Result<File> {
    open_file(path, OpenOptions::new().read(true)).map_err(|source| failure(path, "open", source))
}

/// A file that is read and written through the page cache.
#[derive(Debug)]
pub(crate) struct OsFile {
    name: String,
    file: File,
}

impl OsFile {
    /// The existing file at `path`.
    pub(crate) fn open(path: &Path, writable: bool) -> Result<Self> {
        let opened = open_file(path, OpenOptions::new().read(true).write(writable));
        let file = opened.map_err(|source| failure(path, "open", source))?;
        Ok(Self {
            name: path.display().to_string(),
            file,
        })
    }

    fn failure(&self, op: &'static str, source: io::Error) -> Error {
        failure(Path::new(&self.name), op, source)
    }
}

impl DiskFile for OsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        self.file
            .metadata()
            .map(|metadata| metadata.len())
            .map_err(|source| self.failure("ask for the length of", source))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|source| {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                return Error::Corrupt {
                    file: self.name.clone(),
                    offset,
                    expected: format!("{} bytes", buf.len()),
                    found: "the end of the file".into(),
                };
            }
            self.failure("read", source)
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(buf, offset)
            .map_err(|source| self.failure("write", source))
    }

    fn sync_data(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|source| self.failure("sync", source))
    }

    fn begin_write_back(&self, range: Range<u64>) {
        use std::os::fd::AsRawFd;
        let (begin, bytes) = (range.start.cast_signed(), (range.end - range.start).cast_signed());
        // SAFETY: plain system call on an open descriptor. It begins writes and waits for none, so it takes no error away from the sync.
        unsafe { libc::sync_file_range(self.file.as_raw_fd(), begin, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn take_room(&self, range: Range<u64>) -> Result<()> {
        allocate(&self.file, range).map_err(|source| self.failure("allocate space for", source))
    }

    fn give_back(&self, range: Range<u64>) -> Result<bool> {
        match make_hole(&self.file, range) {
            Ok(()) => Ok(true),
            Err(source) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            Err(source) => Err(self.failure("give back room of", source)),
        }
    }
}

fn offset_of(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn make_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let (begin, length) = (offset_of(range.start)?, offset_of(range.end - range.start)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: plain system call on an open descriptor.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, begin, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn allocate(file: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let (begin, length) = (offset_of(range.start)?, offset_of(range.end - range.start)?);
    loop {
        // SAFETY: plain system call on an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), begin, length) } {
            0 => return Ok(()),
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

fn sync_directory(path: &Path) -> Result<()> {
    let directory = File::open(path).map_err(|source| failure(path, "open", source))?;
    sync_names(path, &directory)
}

fn sync_names(path: &Path, directory: &File) -> Result<()> {
    directory
        .sync_all()
        .map_err(|source| failure(path, "sync", source))
}

/// A read that met the end of the file.
pub(crate) fn missing_bytes(file: &str, offset: u64, bytes: usize) -> Error {
    Error::Corrupt {
        file: file.to_owned(),
        offset,
        expected: format!("{bytes} bytes"),
        found: "the end of the file".into(),
    }
}

/// Says where a read failed.
pub(crate) fn at_offset(offset: u64, bytes: usize, source: &io::Error) -> io::Error {
    io::Error::new(
        source.kind(),
        format!("{bytes} bytes at offset {offset}: {source}"),
    )
}

/// True if the process or the machine lacks something for a while, descriptors or memory, and nothing is wrong with the medium.
pub fn is_passing_want(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    // A read that says where it failed has no number any more.
    source.kind() == io::ErrorKind::OutOfMemory
        || matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

pub(crate) fn failure(path: &Path, op: &'static str, source: io::Error) -> Error {
    let file = path.display().to_string();
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Error::NoSpace {
            what: format!("'{file}'"),
        },
        _ if is_read_only(&source) => Error::ReadOnlyMedia { path: file },
        _ if is_denied(&source) => Error::Denied { file, op, source },
        _ => Error::Io { file, op, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_given_back_reads_as_zeros_and_is_free() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), true).expect("a directory");
        let file = disk.create("a", 0).expect("a new file");
        file.write_at(&vec![7; 10 * 4096], 0).expect("a write");
        file.sync_data().expect("a sync");
        assert_eq!(disk.room("a").expect("its room"), 10 * 4096);
        if !file.give_back(4096..8 * 4096).expect("an answer") {
            return; // A medium without holes keeps the bytes.
        }
        let mut back = vec![1; 10 * 4096];
        file.read_at(&mut back, 0).expect("a read");
        assert_eq!(
            (back[4095], back[4096], back[8 * 4096 - 1], back[8 * 4096]),
            (7, 0, 0, 7)
        );
        assert_eq!(disk.room("a").expect("its room"), 3 * 4096);
        assert_eq!(disk.size("a").expect("its bytes"), 10 * 4096);
        let error = disk.open("a", false).and_then(|file| file.give_back(0..4096));
        assert!(error.expect_err("not writable").to_string().contains("/a'"));
    }

    #[test]
    fn a_directory_without_a_place_says_what_is_missing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (link, away) = (directory.path().join("link"), directory.path().join("away"));
        std::os::unix::fs::symlink(&away, &link).expect("a link");
        for path in [link, away.join("db")] {
            let error = OsDisk::open(&path, true)
                .expect_err("no place for it")
                .to_string();
            let names = |path: &Path| error.contains(&format!("'{}'", path.display()));
            assert!(names(&path) && names(&away), "{error}");
            assert!(error.ends_with("or mount the file system that has it"), "{error}");
            assert!(!away.exists());
        }
    }

    #[test]
    fn a_new_directory_is_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("db");
        OsDisk::open(&path, true).expect("a new directory");
        let mode = std::fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o007, 0, "TR10: mode {mode:o}");
        assert_eq!(mode & 0o700, 0o700, "its owner may do everything");
    }

    #[test]
    fn new_files_are_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), true).expect("a directory");
        disk.create("a", 0).expect("a new file");
        let _lock = disk.lock("pbxt.lock").expect("the lock");
        for name in ["a", "pbxt.lock"] {
            let found = std::fs::metadata(directory.path().join(name)).expect("it is there");
            let mode = found.permissions().mode();
            assert_eq!(mode & 0o007, 0, "TR10: '{name}' has mode {mode:o}");
            assert_eq!(mode & 0o600, 0o600, "its owner may read and write '{name}'");
        }
    }

    #[test]
    fn files_come_and_go_and_errors_name_them() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(&directory.path().join("db"), true).expect("a new directory");
        let file = disk.create("a", 8192).expect("a new file");
        assert_eq!(file.len().expect("length"), 8192);
        file.write_at(b"hello", 100).expect("a write");
        file.sync_data().expect("a sync");
        let mut back = [0; 5];
        disk.open("a", false)
            .expect("the file")
            .read_at(&mut back, 100)
            .expect("a read");
        assert_eq!(&back, b"hello");
        assert!(
            disk.create("a", 0)
                .expect_err("it exists")
                .to_string()
                .contains("/a'")
        );
        disk.rename("a", "b").expect("a rename");
        disk.sync_dir().expect("a directory sync");
        assert_eq!(disk.list().expect("a listing"), ["b"]);
        assert!(disk.free_bytes().expect("free bytes") > 0);
        disk.remove("b").expect("a removal");
        assert!(!disk.exists("b").expect("an answer"));
    }

    #[test]
    fn a_refused_preallocation_leaves_no_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let refused = disk.create("huge", 1 << 62).expect_err("no disk is that large");
        assert!(!disk.exists("huge").expect("an answer"), "{refused}");
    }

    #[test]
    fn errors_of_the_system_become_the_sentences_of_the_engine() {
        let of = |code| {
            failure(
                Path::new("/db/hot-1.seg"),
                "write",
                io::Error::from_raw_os_error(code),
            )
        };
        assert!(matches!(of(libc::ENOSPC), Error::NoSpace { .. }));
        assert!(matches!(of(libc::EDQUOT), Error::NoSpace { .. }));
        assert!(matches!(of(libc::EROFS), Error::ReadOnlyMedia { .. }));
        for code in [libc::EACCES, libc::EPERM] {
            let denied = of(code);
            assert!(matches!(denied, Error::Denied { .. }), "{denied:?}");
            let denied = denied.to_string();
            assert!(
                denied.starts_with("this user may not write '/db/hot-1.seg' ("),
                "{denied}"
            );
            assert!(denied.contains("look at owner, rights"), "{denied}");
            assert!(!denied.contains("read-only"), "{denied}");
        }
        let failed = of(libc::EIO).to_string();
        assert!(failed.starts_with("cannot write '/db/hot-1.seg': "), "{failed}");
    }

    #[test]
    fn want_of_descriptors_and_memory_passes_and_other_failures_do_not() {
        let system = io::Error::from_raw_os_error;
        let of = |source| is_passing_want(&failure(Path::new("/db/cold-1.seg"), "read", source));
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(of(system(code)), "SC4: {code}");
        }
        assert!(of(at_offset(4096, 100, &system(libc::ENOMEM))), "SC4");
        assert!(!of(system(libc::EIO)) && !of(at_offset(4096, 100, &system(libc::EIO))));
        assert!(!is_passing_want(&missing_bytes("/db/cold-1.seg", 4096, 100)));
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let file = disk.create("short", 100).expect("a new file");
        assert!(
            file.read_at(&mut [0; 8], 96)
                .expect_err("4 bytes are missing")
                .to_string()
                .contains("/short'")
        );
    }

    #[test]
    fn a_second_opener_is_told_who_has_the_lock() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let held = disk.lock("lock").expect("the lock");
        let refused = disk.lock("lock").expect_err("it is held").to_string();
        assert!(
            refused.contains(&format!("process {}", std::process::id())),
            "{refused}"
        );
        drop(held);
        disk.lock("lock").expect("free again");
    }

    /// What somebody without rights gets, who is this user if that is not root.
    fn without_rights<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                // SAFETY: a system call without memory; it counts for this thread alone, which ends.
                unsafe { libc::setfsuid(65534) };
                work()
            });
            done.join().expect("no panic")
        })
    }

    fn lock_without_rights(disk: &OsDisk) -> Result<DiskLock> {
        without_rights(|| disk.lock("lock"))
    }

    #[test]
    fn who_has_no_right_to_a_file_is_told_which_and_what_to_do() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("entered by all");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        disk.create("a", 100).expect("a new file");
        set_permissions(directory.path().join("a"), Permissions::from_mode(0o000)).expect("read by nobody");
        let refused = [
            ("open", without_rights(|| disk.open("a", false).map(drop))),
            ("open", without_rights(|| disk.open("a", true).map(drop))),
            ("open", without_rights(|| disk.open_blocks("a").map(drop))),
            ("create", without_rights(|| disk.create("b", 0).map(drop))),
            ("rename", without_rights(|| disk.rename("a", "b"))),
            ("remove", without_rights(|| disk.remove("a"))),
        ];
        for (op, result) in refused {
            let error = result.expect_err(op);
            assert!(matches!(error, Error::Denied { .. }), "{op}: {error}");
            let text = error.to_string();
            let named = text.contains(&format!("may not {op} '"))
                && text.contains(&directory.path().display().to_string());
            assert!(named, "{text}");
        }
    }

    #[test]
    fn who_may_not_write_the_lock_file_is_told_all_the_same_who_has_it() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("entered by all");
        let disk = OsDisk::open(directory.path(), false).expect("the directory");
        let held = disk.lock("lock").expect("the lock");
        let path = directory.path().join("lock");
        set_permissions(&path, Permissions::from_mode(0o444)).expect("read by all");
        let refused = lock_without_rights(&disk).expect_err("it is held");
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        drop(held);
        drop(lock_without_rights(&disk).expect("free again"));
        set_permissions(&path, Permissions::from_mode(0o000)).expect("read by nobody");
        let refused = lock_without_rights(&disk).expect_err("nobody knows");
        assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    }

    #[test]
    fn only_a_medium_that_cannot_be_written_excuses_a_missing_lock_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let of = |code| {
            let path = directory.path().join("lock");
            lock_unwritten(&path, io::Error::from_raw_os_error(code)).expect_err("there is none")
        };
        assert!(matches!(of(libc::EROFS), Error::ReadOnlyMedia { .. }));
        assert!(matches!(of(libc::EACCES), Error::Denied { .. }));
    }
}
