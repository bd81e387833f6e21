//! Which program of llama.cpp to be, by llamafile's flags.

use std::ffi::OsString;

use rys::tool::Tool;

use crate::failure::Failure;

const FLAGS: [(&str, Tool); 3] = [
    ("--server", Tool::Server),
    ("--chat", Tool::Chat),
    ("--cli", Tool::Completion),
];

/// Takes the mode out of the command line; what stays is the llama.cpp program's.
///
/// # Errors
/// Two different modes.
pub fn take(args: Vec<OsString>) -> Result<(Tool, Vec<OsString>), Failure> {
    let mut found: Option<(&str, Tool)> = None;
    let mut rest = Vec::with_capacity(args.len() + 1);
    for (i, arg) in args.into_iter().enumerate() {
        let mode = FLAGS.into_iter().find(|(flag, _)| i > 0 && arg == *flag);
        match (mode, found) {
            (None, _) => rest.push(arg),
            (Some((flag, _)), Some((other, _))) if flag != other => {
                return Err(Failure::refused(format!(
                    "{other} and {flag} exclude each other: give one of --server, --chat and --cli"
                )));
            }
            (Some(mode), _) => found = Some(mode),
        }
    }
    let tool = found.map_or(Tool::Server, |(_, tool)| tool);
    if tool == Tool::Completion {
        // One answer, then the end, as llamafile's --cli; a later -cnv brings the conversation back.
        rest.insert(1.min(rest.len()), "-no-cnv".into());
    }
    Ok((tool, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        #[track_caller]
        fn check(args: &str, want: Result<(Tool, &str), &str>) {
            let args = args.split(' ').map(OsString::from).collect();
            let got = take(args).map(|(tool, rest)| {
                let rest: Vec<_> = rest.iter().map(|a| a.to_string_lossy()).collect();
                (tool, rest.join(" "))
            });
            match want {
                Ok((tool, rest)) => assert_eq!(got.unwrap(), (tool, rest.to_owned())),
                Err(text) => assert!(got.unwrap_err().text.contains(text)),
            }
        }
        check("x", Ok((Tool::Server, "x")));
        check("x -m a --port 1", Ok((Tool::Server, "x -m a --port 1")));
        check("x --server -m a", Ok((Tool::Server, "x -m a")));
        check("x -m a --chat", Ok((Tool::Chat, "x -m a")));
        check("x --cli -p a", Ok((Tool::Completion, "x -no-cnv -p a")));
        check("x --chat --chat", Ok((Tool::Chat, "x")));
        check("--chat -m a", Ok((Tool::Server, "--chat -m a")));
        check("x --chat --cli", Err("--chat and --cli exclude each other"));
    }
}
