use super::*;

const HEAD: &str = "From 0\nSubject: [PATCH] x\n\nWhy: y\n\n";

fn modify(hunks: &str) -> String {
    format!("{HEAD}diff --git a/f b/f\nindex 0..1 100644\n--- a/f\n+++ b/f\n{hunks}")
}

fn apply(patches: &[String], old: Option<&str>, place: Place) -> Result<Applied> {
    let patches = patches
        .iter()
        .enumerate()
        .map(|(i, text)| Patch::parse(&format!("{i}.patch"), text.clone().into_bytes()))
        .collect::<Result<_>>()?;
    Series { patches }.apply(place, |path| {
        assert_eq!(path, "f");
        Ok(old.map(|o| o.as_bytes().to_vec()))
    })
}

/// `want` is the new text, or the whole error.
fn check(patches: &[String], old: Option<&str>, place: Place, want: Result<&str, &str>) {
    match (apply(patches, old, place), want) {
        (Ok(applied), Ok(want)) => {
            let got = applied.files["f"].as_deref().map(String::from_utf8_lossy);
            assert_eq!(got.as_deref(), Some(want));
        }
        (Err(e), Err(want)) => assert_eq!(format!("{e:#}"), want),
        (got, want) => panic!("{got:?}, not {want:?}"),
    }
}

#[test]
fn exact_place() {
    let hunk = modify("@@ -2 +2,2 @@ fn\n b\n+x\n");
    check(
        std::slice::from_ref(&hunk),
        Some("a\nb\nc\n"),
        Place::Exact,
        Ok("a\nb\nx\nc\n"),
    );
    // One line lower it fits only with an offset, and the offset is noted.
    check(
        std::slice::from_ref(&hunk),
        Some("0\na\nb\nc\n"),
        Place::Exact,
        Err(
            "0.patch does not apply to f: the hunk at line 2 does not fit: line 2 should be `b`, found `a`",
        ),
    );
    let moved = apply(&[hunk], Some("0\na\nb\nc\n"), Place::OffsetAllowed).unwrap();
    assert_eq!(
        moved.files["f"].as_deref(),
        Some(b"0\na\nb\nx\nc\n".as_slice())
    );
    assert_eq!(
        moved.notes,
        ["f: hunk at line 2 applied at line 3 (offset 1)"]
    );
}

#[test]
fn no_fuzz() {
    let hunk = modify("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    for place in [Place::Exact, Place::OffsetAllowed] {
        assert!(apply(std::slice::from_ref(&hunk), Some("a\nb\nd\n"), place).is_err());
    }
}

#[test]
fn patched_already() {
    let hunk = modify("@@ -1,2 +1,2 @@\n-a\n+A\n b\n");
    check(
        &[hunk],
        Some("A // opencoti-hook: rys-layer-dup\nb\n"),
        Place::OffsetAllowed,
        Err(
            "0.patch does not apply to f: the hunk at line 1 does not fit: line 1 should be `a`, \
             found `A // opencoti-hook: rys-layer-dup`: the file is patched already; use a pristine llama.cpp",
        ),
    );
}

#[test]
fn offsets_are_not_guessed() {
    let hunk = modify("@@ -1,2 +1,3 @@\n }\n+x\n \n");
    check(
        &[hunk],
        Some("a\n}\n\nb\n}\n\n"),
        Place::OffsetAllowed,
        Err(
            "0.patch does not apply to f: the hunk at line 1 does not fit: line 1 should be `}`, \
             found `a`: its old lines are at line 2 and at line 5: the place is ambiguous",
        ),
    );
    // A hunk that moved leads the next one.
    let two = modify("@@ -1 +1,2 @@\n a\n+x\n@@ -3 +4,2 @@\n }\n+y\n");
    check(
        &[two],
        Some("0\na\nb\n}\nc\n}\n"),
        Place::OffsetAllowed,
        Ok("0\na\nx\nb\n}\ny\nc\n}\n"),
    );
}

#[test]
fn patches_build_on_each_other() {
    let one = modify("@@ -1 +1 @@\n-a\n+b\n");
    let two = modify("@@ -1 +1 @@\n-b\n+c\n");
    check(
        &[one.clone(), two.clone()],
        Some("a\n"),
        Place::Exact,
        Ok("c\n"),
    );
    assert!(apply(&[two, one], Some("a\n"), Place::Exact).is_err());
}

#[test]
fn created_deleted_and_missing_files() {
    let create = format!(
        "{HEAD}diff --git a/f b/f\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    );
    check(
        std::slice::from_ref(&create),
        None,
        Place::Exact,
        Ok("a\nb"),
    );
    check(
        &[create],
        Some(""),
        Place::Exact,
        Err("0.patch does not apply to f: the file is already there"),
    );
    let delete = format!(
        "{HEAD}diff --git a/f b/f\ndeleted file mode 100644\nindex 1..0\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    );
    assert_eq!(
        apply(std::slice::from_ref(&delete), Some("a\n"), Place::Exact)
            .unwrap()
            .files["f"],
        None
    );
    assert!(apply(&[delete], Some("a\nb\n"), Place::Exact).is_err());
    let modify = modify("@@ -1 +1 @@\n-a\n+b\n");
    check(
        &[modify],
        None,
        Place::Exact,
        Err("0.patch does not apply to f: there is no such file"),
    );
}

#[test]
fn newline_at_the_end() {
    let add = modify("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
    check(&[add], Some("a"), Place::Exact, Ok("a\n"));
    let drop = modify("@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
    check(
        std::slice::from_ref(&drop),
        Some("a\n"),
        Place::Exact,
        Ok("a"),
    );
    assert!(apply(&[drop], Some("a"), Place::Exact).is_err());
}

#[test]
fn broken_patches() {
    let whole = modify("@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    assert!(Patch::parse("p", whole.clone().into_bytes()).is_ok());
    // Cut anywhere inside the diff, it is refused.
    for cut in HEAD.len()..whole.len() {
        assert!(
            Patch::parse("p", whole.as_bytes()[..cut].to_vec()).is_err(),
            "cut at {cut}"
        );
    }
    let refused = |text: &str, want: &str| {
        let e = Patch::parse("p", text.as_bytes().to_vec()).unwrap_err();
        assert_eq!(format!("{e:#}"), want);
    };
    refused(HEAD, "it changes no file");
    refused(
        &whole.replace("index 0..1 100644", "rename from g"),
        "line 7: `rename from g` is not supported (no renames, copies, mode changes or binary files)",
    );
    refused(
        &whole.replace("-1,2", "-1,3"),
        "line 10: the hunk is cut short",
    );
    refused(
        &whole.replace("-1,2", "-1,1"),
        "line 12: more lines than the hunk header at line 10 says",
    );
    refused(
        &format!("{whole}junk\n"),
        "line 14: expected `diff --git`, found `junk`",
    );
    refused(
        &whole
            .replace(" b/f\nindex", " b/../f\nindex")
            .replace("+++ b/f", "+++ b/../f")
            .replace("a/f b", "a/../f b"),
        "unsafe path `../f`",
    );
}

#[test]
fn places_must_add_up() {
    let hunk = modify("@@ -2 +7,2 @@\n b\n+x\n");
    check(
        &[hunk],
        Some("a\nb\n"),
        Place::Exact,
        Err(
            "0.patch does not apply to f: the hunk at line 2 gives line 7 as its place in the new file, which does not add up",
        ),
    );
}

#[test]
fn series_folder() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        Series::read(&dir.path().join("none"))
            .unwrap()
            .patches
            .is_empty()
    );
    assert!(Series::read(dir.path()).unwrap().patches.is_empty());
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("0001-a.patch", &modify("@@ -1 +1 @@\n-a\n+b\n"));
    let error =
        |e: anyhow::Error| format!("{e:#}").replace(&dir.path().display().to_string(), "DIR");
    assert_eq!(
        error(Series::read(dir.path()).unwrap_err()),
        "DIR/0001-a.patch is not listed in series"
    );
    write("series", "# comment\n0001-a.patch\n");
    assert_eq!(Series::read(dir.path()).unwrap().patches.len(), 1);
    write("series", "0001-a.patch\n0002-b.patch\n");
    assert!(
        error(Series::read(dir.path()).unwrap_err())
            .starts_with("cannot read DIR/0002-b.patch (listed in series)")
    );
}
