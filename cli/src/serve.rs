//! `pcp serve`, and the page of `pcp train --serve`.

use super::progress;
use super::terminal::say;
use clap::Args;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_serve::{Catalogue, Listen, MatrixOptions, Server};
use std::io::{BufRead, IsTerminal};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp serve runs/photos --open                    a run: its map, its clusters, what to keep
  pcp serve runs                                  all runs in a folder, finished or not
  pcp serve emb.npy --images PHOTOS/              any embeddings with their images
  pcp train PHOTOS/ --serve                       watch a run while it trains

The page is for this machine alone, and for who has the link, which works once. Decisions are lines of decisions.jsonl in the
run folder; `pcp purify --decisions` and `pcp train --decisions` honour them. No image is ever moved or changed. docs/serve.md
says more.")]
pub struct ServeArgs {
    /// Run folders, folders of runs, or one matrix (.npy, .csv, .safetensors) [default: runs]
    #[arg(value_name = "RUN|FOLDER|EMB")]
    what: Vec<PathBuf>,
    /// The folder that the names of the images are below [default: the run's, if they have not changed since]
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Names of the rows of a matrix: a CSV file with a column `file` [default: EMB.files.csv for EMB.npy, or files.csv beside it]
    #[arg(long, value_name = "FILE")]
    files: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
}

/// Where the page is.
#[derive(Args)]
pub struct PageArgs {
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
    /// Port [default: any free one]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Address to listen on; any but the default lets other machines connect, over an unencrypted connection
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// A name under which this machine is reached; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

impl PageArgs {
    /// A page for this machine alone.
    pub fn on(port: u16, open: bool) -> PageArgs {
        PageArgs { open, port, listen: Ipv4Addr::LOCALHOST.into(), host: Vec::new() }
    }

    /// Starts the page and says where it is.
    pub fn start(&self, catalogue: Catalogue) -> Result<Server> {
        let listen = Listen { address: self.listen, port: self.port, hosts: self.host.clone() };
        let server = Server::start(Arc::new(catalogue), &listen)?;
        let link = server.link()?;
        super::print(&format!("open {link} in a browser (the link works once)"))?;
        if !self.listen.is_loopback() {
            say(
                "warning: other machines can connect, and the connection is not encrypted: use it in networks that you trust",
            );
        }
        if self.open {
            open(&link)?;
        }
        Ok(server)
    }
}

pub fn run(args: &ServeArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let matrix = args.what.iter().find(|path| path.is_file());
    let catalogue = match matrix {
        Some(file) if args.what.len() == 1 => {
            let options = MatrixOptions { file: file.clone(), images: args.images.clone(), files: args.files.clone() };
            Catalogue::of_matrix(&options, &progress::job(false, stop))?
        }
        Some(file) => {
            return Err(Error::usage(format!("{} stands alone", file.display()), "give one matrix, or only runs"));
        }
        None if args.files.is_some() => {
            return Err(Error::usage("--files is for matrices", "leave it out: a run has its own files.csv"));
        }
        None => {
            let usual = [PathBuf::from("runs")];
            let what = if args.what.is_empty() { &usual[..] } else { &args.what };
            Catalogue::of_runs(what, args.images.clone())?
        }
    };
    let server = Arc::new(args.page.start(catalogue)?);
    if std::io::stdin().is_terminal() {
        say("press Enter for another link, Ctrl-C to end");
        let asked = server.clone();
        std::thread::spawn(move || {
            for _ in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                if let Ok(link) = asked.link() {
                    say(&format!("open {link}"));
                }
            }
        });
    }
    server.wait(stop);
    Ok(())
}

/// Opens the link in the browser, by a file that only the user can read: the arguments of a program are seen by everybody.
fn open(link: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("pcp-{}", std::process::id()));
    let page = folder.join("open.html");
    let io = |e: std::io::Error| Error::io("write", &page, &e);
    make_private(&folder).map_err(io)?;
    let text = format!("<!doctype html><title>pcp</title><meta http-equiv=\"refresh\" content=\"0;url={link}\">");
    std::fs::write(&page, text).map_err(io)?;
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let started =
        Command::new(program).arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(e) = started {
        say(&format!("warning: no browser could be opened ({program}: {e}); open the link yourself"));
    }
    Ok(())
}

/// A new folder for this user alone.
fn make_private(folder: &Path) -> std::io::Result<()> {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
