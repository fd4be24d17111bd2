//! A disk that loses power: what the system calls of a command, as `strace` records them, have left on it after any of them.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

/// Calls that change a disk, or bring changes to it.
const CALLS: &str = "openat,open,creat,write,pwrite64,writev,ftruncate,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,\
                     link,linkat,symlink,symlinkat,fsync,fdatasync,close,fcntl,dup,lseek,copy_file_range,sendfile,sendto";

/// What of the calls before a loss of power is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All of it: the process alone was killed.
    AsCalled,
    /// Contents and names that were synced, and nothing else.
    Synced,
    /// All names, but only contents that were synced: names reach the disk before data.
    NamesFirst,
}

pub const RULES: [Rule; 3] = [Rule::AsCalled, Rule::Synced, Rule::NamesFirst];

#[derive(Clone)]
enum Node {
    File { now: Vec<u8>, synced: Vec<u8> },
    Folder { now: BTreeMap<String, usize>, synced: BTreeMap<String, usize> },
    Link(Vec<u8>),
}

/// The disk below one folder.
#[derive(Clone)]
pub struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    /// Open files: node, position, and whether every write goes to the end.
    open: HashMap<i64, (usize, usize, bool)>,
}

/// One call: its name, its arguments, what it returned.
pub struct Call {
    name: String,
    arguments: Vec<String>,
    returned: i64,
}

/// Whether `strace` is there; says so when it is not.
pub fn have_strace() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let works = found.is_ok_and(|status| status.success())
        && Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success());
    if !works {
        println!("skipped: this needs strace");
    }
    works
}

/// A command under `strace`, which writes its calls into `log`.
pub fn traced(program: &str, args: &[&str], log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-xx", "-s", "100000000", "-e", &format!("trace={CALLS}"), "-o"]).arg(log);
    command.arg(program).args(args).stdin(Stdio::null());
    command
}

/// Runs a command under `strace`; returns its calls.
pub fn recorded(program: &str, args: &[&str]) -> Vec<Call> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let status = traced(program, args, log.path()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success(), "{args:?}");
    calls_in(log.path())
}

/// The calls in a log, in the order in which they ended.
pub fn calls_in(log: &Path) -> Vec<Call> {
    let text = fs::read_to_string(log).unwrap();
    let (mut calls, mut begun) = (Vec::new(), HashMap::new());
    for line in text.lines() {
        let (process, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        if let Some(head) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(process, head.to_string());
        } else if let Some(tail) = rest.strip_prefix("<... ") {
            let tail = tail.split_once("resumed>").unwrap().1;
            calls.extend(begun.remove(process).and_then(|head| parse(&(head + tail))));
        } else {
            calls.extend(parse(rest));
        }
    }
    calls
}

impl Call {
    /// Whether it sends `text`, or what begins so, to another process.
    pub fn sends(&self, text: &str) -> bool {
        self.name == "sendto" && bytes(&self.arguments[1]).starts_with(text.as_bytes())
    }
}

fn parse(line: &str) -> Option<Call> {
    let (head, tail) = line.rsplit_once(" = ")?;
    let (name, arguments) = head.trim_end().strip_suffix(')')?.split_once('(')?;
    let returned: String = tail.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
    let returned = returned.parse().ok().filter(|n| *n >= 0)?;
    Some(Call { name: name.into(), arguments: arguments.split(", ").map(String::from).collect(), returned })
}

/// The bytes of a string in hexadecimal escapes.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.trim_matches('"').split("\\x").skip(1);
    digits.map(|pair| u8::from_str_radix(&pair[..2], 16).unwrap()).collect()
}

fn path_in(text: &str) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes(text)).into_owned())
}

/// The number of an open file, and its path.
fn file_of(argument: &str) -> (i64, PathBuf) {
    let (number, path) = argument.split_once('<').unwrap_or((argument, ""));
    (number.parse().unwrap_or(-1), path_in(path.trim_end_matches('>')))
}

impl Disk {
    /// The disk below `root` as it is now; all of it is synced.
    pub fn of(root: &Path) -> Disk {
        let mut disk = Disk { root: root.to_path_buf(), nodes: Vec::new(), open: HashMap::new() };
        disk.read(root);
        disk
    }

    fn read(&mut self, path: &Path) -> usize {
        let kind = path.symlink_metadata().unwrap().file_type();
        let at = self.nodes.len();
        if kind.is_symlink() {
            self.nodes.push(Node::Link(fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()));
        } else if kind.is_file() {
            let now = fs::read(path).unwrap();
            self.nodes.push(Node::File { synced: now.clone(), now });
        } else {
            self.nodes.push(Node::Folder { now: BTreeMap::new(), synced: BTreeMap::new() });
            let entries =
                fs::read_dir(path).unwrap().flatten().map(|e| (e.file_name().into_string().unwrap(), e.path()));
            let inside: BTreeMap<String, usize> = entries.map(|(name, path)| (name, self.read(&path))).collect();
            self.nodes[at] = Node::Folder { now: inside.clone(), synced: inside };
        }
        at
    }

    fn entries(&mut self, folder: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[folder] {
            Node::Folder { now, .. } => now,
            _ => panic!("not a folder"),
        }
    }

    /// The node of a path below the root, if there is one.
    fn find(&self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for part in path.strip_prefix(&self.root).ok()?.components() {
            let (Component::Normal(name), Node::Folder { now, .. }) = (part, &self.nodes[at]) else { return None };
            at = *now.get(name.to_str()?)?;
        }
        Some(at)
    }

    /// The folder that a path is in, and its name there.
    fn place(&self, path: &Path) -> Option<(usize, String)> {
        Some((self.find(path.parent()?)?, path.file_name()?.to_str()?.to_string()))
    }

    fn add(&mut self, path: &Path, node: Node) -> Option<usize> {
        let (folder, name) = self.place(path)?;
        self.nodes.push(node);
        let at = self.nodes.len() - 1;
        self.entries(folder).insert(name, at);
        Some(at)
    }

    fn remove(&mut self, path: &Path) -> Option<usize> {
        let (folder, name) = self.place(path)?;
        self.entries(folder).remove(&name)
    }

    /// The path of two arguments: a folder and a name below it.
    fn joined(folder: &str, name: &str) -> PathBuf {
        let name = path_in(name);
        if name.is_absolute() { name } else { file_of(folder).1.join(name) }
    }

    /// Makes a call; returns whether it can have changed what is on the disk.
    pub fn make(&mut self, call: &Call) -> bool {
        let a: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        match call.name.as_str() {
            "openat" => {
                let (path, flags) = (Self::joined(a[0], a[1]), a[2]);
                let new = self.find(&path).is_none() && flags.contains("O_CREAT");
                if new {
                    self.add(&path, Node::File { now: Vec::new(), synced: Vec::new() });
                }
                let Some(at) = self.find(&path) else { return false };
                let cut = flags.contains("O_TRUNC");
                if let (true, Node::File { now, .. }) = (cut, &mut self.nodes[at]) {
                    now.clear();
                }
                self.open.insert(call.returned, (at, 0, flags.contains("O_APPEND")));
                new || cut
            }
            "open" | "creat" | "writev" | "copy_file_range" | "sendfile" => {
                let inside = a.iter().any(|argument| file_of(argument).1.starts_with(&self.root));
                assert!(!inside, "{} is not replayed: {a:?}", call.name);
                false
            }
            "close" => {
                self.open.remove(&file_of(a[0]).0);
                false
            }
            "fcntl" | "dup" => {
                let copies = call.name == "dup" || a[1].starts_with("F_DUPFD");
                if let (true, Some(file)) = (copies, self.open.get(&file_of(a[0]).0).copied()) {
                    self.open.insert(call.returned, file);
                }
                false
            }
            "lseek" => {
                if let Some(file) = self.open.get_mut(&file_of(a[0]).0) {
                    file.1 = call.returned as usize;
                }
                false
            }
            "write" | "pwrite64" => {
                let Some(&(at, position, append)) = self.open.get(&file_of(a[0]).0) else { return false };
                let mut data = bytes(a[1]);
                data.truncate(call.returned as usize);
                let Node::File { now, .. } = &mut self.nodes[at] else { return false };
                let from = match call.name.as_str() {
                    "pwrite64" => a[3].parse().unwrap(),
                    _ if append => now.len(),
                    _ => position,
                };
                now.resize(now.len().max(from + data.len()), 0);
                now[from..from + data.len()].copy_from_slice(&data);
                if call.name == "write" {
                    self.open.insert(file_of(a[0]).0, (at, from + data.len(), append));
                }
                true
            }
            "ftruncate" => {
                let Some(&(at, ..)) = self.open.get(&file_of(a[0]).0) else { return false };
                if let Node::File { now, .. } = &mut self.nodes[at] {
                    now.resize(a[1].parse().unwrap(), 0);
                }
                true
            }
            "fsync" | "fdatasync" => {
                let Some(&(at, ..)) = self.open.get(&file_of(a[0]).0) else { return false };
                match &mut self.nodes[at] {
                    Node::File { now, synced } => *synced = now.clone(),
                    Node::Folder { now, synced } => *synced = now.clone(),
                    Node::Link(_) => {}
                }
                true
            }
            "rename" => self.rename(&path_in(a[0]), &path_in(a[1])),
            "renameat" | "renameat2" => self.rename(&Self::joined(a[0], a[1]), &Self::joined(a[2], a[3])),
            "link" => self.link(&path_in(a[0]), &path_in(a[1])),
            "linkat" => self.link(&Self::joined(a[0], a[1]), &Self::joined(a[2], a[3])),
            "symlink" => self.add(&path_in(a[1]), Node::Link(bytes(a[0]))).is_some(),
            "symlinkat" => self.add(&Self::joined(a[1], a[2]), Node::Link(bytes(a[0]))).is_some(),
            "unlink" | "rmdir" => self.remove(&path_in(a[0])).is_some(),
            "unlinkat" => self.remove(&Self::joined(a[0], a[1])).is_some(),
            "mkdir" | "mkdirat" => {
                let path = if call.name == "mkdir" { path_in(a[0]) } else { Self::joined(a[0], a[1]) };
                self.add(&path, Node::Folder { now: BTreeMap::new(), synced: BTreeMap::new() }).is_some()
            }
            _ => false,
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> bool {
        let Some(node) = self.remove(from) else { return false };
        let Some((folder, name)) = self.place(to) else { return true };
        self.entries(folder).insert(name, node);
        true
    }

    fn link(&mut self, from: &Path, to: &Path) -> bool {
        let (Some(node), Some((folder, name))) = (self.find(from), self.place(to)) else { return false };
        self.entries(folder).insert(name, node);
        true
    }

    /// What is left of it when the power goes now: names, and the contents of files, or the targets of links.
    pub fn left(&self, rule: Rule) -> BTreeMap<PathBuf, Left> {
        let mut all = BTreeMap::new();
        self.collect(0, Path::new(""), rule, &mut all);
        all
    }

    fn collect(&self, at: usize, path: &Path, rule: Rule, all: &mut BTreeMap<PathBuf, Left>) {
        match &self.nodes[at] {
            Node::File { now, synced } => {
                let contents = if rule == Rule::AsCalled { now } else { synced };
                all.insert(path.to_path_buf(), Left::File(contents.clone()));
            }
            Node::Link(target) => {
                all.insert(path.to_path_buf(), Left::Link(String::from_utf8(target.clone()).unwrap()));
            }
            Node::Folder { now, synced } => {
                all.insert(path.to_path_buf(), Left::Folder);
                let entries = if rule == Rule::Synced { synced } else { now };
                entries.iter().for_each(|(name, node)| self.collect(*node, &path.join(name), rule, all));
            }
        }
    }
}

/// What a name stands for after a loss of power.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    Folder,
    File(Vec<u8>),
    Link(String),
}

/// Writes what is left into the empty folder `root`.
pub fn restore(left: &BTreeMap<PathBuf, Left>, root: &Path) {
    for (name, what) in left {
        let path = root.join(name);
        match what {
            Left::Folder => fs::create_dir_all(path).unwrap(),
            Left::File(contents) => fs::write(path, contents).unwrap(),
            Left::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        }
    }
}
