//! git, cut off from the user's settings and from any repository around the tree.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A git work tree of ours.
pub struct Git {
    pub tree: PathBuf,
}

impl Git {
    /// Opens the tree; its repository must be its own.
    pub fn open(tree: &Path) -> Result<Git> {
        ensure!(
            tree.join(".git").is_dir(),
            "{} is not a tree made by `cargo xtask patches apply`",
            tree.display()
        );
        Ok(Git {
            tree: tree.to_owned(),
        })
    }

    /// Makes an empty repository.
    pub fn init(tree: &Path) -> Result<Git> {
        let git = Git {
            tree: tree.to_owned(),
        };
        git.run(&["init", "--quiet", "--initial-branch=rys"])?;
        // For the user's own commits in the tree, outside of this program.
        git.run(&["config", "core.autocrlf", "false"])?;
        Git::open(tree)
    }

    /// Runs a command and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.feed(args, b"")
    }

    /// Runs a command with standard input.
    pub fn feed(&self, args: &[&str], input: &[u8]) -> Result<String> {
        let mut cmd = Command::new("git");
        for var in [
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
            "GIT_COMMON_DIR",
            "GIT_PREFIX",
        ] {
            cmd.env_remove(var);
        }
        let (name, mail) = super::AUTHOR
            .split_once(" <")
            .unwrap_or((super::AUTHOR, ">"));
        cmd.current_dir(&self.tree)
            .env("GIT_DIR", self.tree.join(".git"))
            .env("GIT_CEILING_DIRECTORIES", &self.tree)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_COMMITTER_NAME", name)
            .env("GIT_COMMITTER_EMAIL", mail.trim_end_matches('>'))
            .env("GIT_COMMITTER_DATE", super::DATE)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = cmd.spawn().context("cannot start git")?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(input)
                .context("git does not read its input")?;
        }
        let out = child.wait_with_output()?;
        ensure!(
            out.status.success(),
            "`git {}` failed in {}: {}",
            args.join(" "),
            self.tree.display(),
            String::from_utf8_lossy(&out.stderr).trim()
        );
        String::from_utf8(out.stdout).context("git printed text that is not UTF-8")
    }
}
