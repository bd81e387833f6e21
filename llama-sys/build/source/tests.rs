use super::*;
use manifest::format_manifest;

/// A pin, its archive and the folder they live in; the tree has three files.
struct Fixture {
    dir: tempfile::TempDir,
    pin: Pin,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("made");
        for (path, text) in [
            ("include/llama.h", "h\n"),
            ("CMakeLists.txt", "c\n"),
            ("src/a.cpp", "a\n"),
        ] {
            let full = tree.join(path);
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(full, text).unwrap();
        }
        let digest = manifest_digest(&scan(&tree).unwrap());
        fs::write(tree.join(".git"), "gitdir: elsewhere\n").unwrap();

        let downloads = dir.path().join("cache/downloads");
        fs::create_dir_all(&downloads).unwrap();
        let archive = downloads.join("p.tar.gz");
        let gz = flate2::write::GzEncoder::new(
            fs::File::create(&archive).unwrap(),
            flate2::Compression::fast(),
        );
        let mut tar = tar::Builder::new(gz);
        tar.append_dir_all("p/llama.cpp", &tree).unwrap();
        tar.append_path_with_name(tree.join("CMakeLists.txt"), "p/other")
            .unwrap();
        tar.into_inner().unwrap().finish().unwrap();

        let sha256 = sha256_file(&archive).unwrap();
        let text = format!(
            "[package]\nname = \"p\"\nversion = \"1\"\nfile = \"p.tar.gz\"\nsha256 = \"{sha256}\"\n\
             tree = \"p/llama.cpp\"\n[upstream]\ncommit = \"c\"\nbuild-number = 1\nmanifest-sha256 = \"{digest}\"\n"
        );
        fs::create_dir(dir.path().join("vendor")).unwrap();
        fs::write(dir.path().join("vendor/UPSTREAM.toml"), text).unwrap();
        let pin = Pin::read(&dir.path().join("vendor")).unwrap();
        Fixture { dir, pin }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn unpack(&self) -> Result<()> {
        unpack(
            &self.path("cache/downloads/p.tar.gz"),
            &self.pin,
            &self.path("vendor/llama.cpp"),
            &mut |_| (),
        )
    }

    fn find(&self, own: Option<&str>) -> Result<Source> {
        let own = own.map(|o| self.path(o));
        find(
            own.as_deref(),
            &self.path("vendor"),
            Some(&self.path("cache")),
            &self.path("scratch"),
        )
    }

    fn error<T: std::fmt::Debug>(&self, result: Result<T>) -> String {
        format!("{:#}", result.unwrap_err()).replace(&self.dir.path().display().to_string(), "DIR")
    }
}

#[test]
fn unpacks_the_pinned_tree() {
    let f = Fixture::new();
    f.unpack().unwrap();
    let source = f.find(None).unwrap();
    assert!(source.pinned);
    assert_eq!(source.root, f.path("vendor/llama.cpp"));
    let paths: Vec<_> = source.files.iter().map(|e| e.path.as_str()).collect();
    assert_eq!(paths, ["CMakeLists.txt", "include/llama.h", "src/a.cpp"]);
    assert!(!f.path("vendor/.llama.cpp.new").exists());
}

#[test]
fn names_a_broken_tree_and_the_repair() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage, &str); 6] = [
        ("src/a.cpp", |p| fs::write(p, "b\n").unwrap(), "was edited"),
        ("src/a.cpp", |p| fs::write(p, "a").unwrap(), "is truncated"),
        (
            "src/a.cpp",
            |p| fs::write(p, "a\na\n").unwrap(),
            "was edited",
        ),
        ("src/a.cpp", |p| fs::remove_file(p).unwrap(), "is missing"),
        ("src/b.cpp", |p| fs::write(p, "b\n").unwrap(), "was added"),
        ("", |p| fs::remove_dir_all(p).unwrap(), "is missing"),
    ];
    for (path, damage, what) in cases {
        let f = Fixture::new();
        f.unpack().unwrap();
        damage(&f.path("vendor/llama.cpp").join(path));
        let path = if path.is_empty() {
            "CMakeLists.txt"
        } else {
            path
        };
        assert_eq!(
            f.error(f.find(None)),
            format!("DIR/vendor/llama.cpp/{path} {what}; run `cargo xtask vendor` to restore it")
        );
        f.unpack().unwrap();
        f.find(None).unwrap();
    }
}

#[test]
fn refuses_a_damaged_manifest() {
    let f = Fixture::new();
    f.unpack().unwrap();
    let path = f.path("vendor/.llama.cpp.manifest");
    let whole = fs::read_to_string(&path).unwrap();
    for cut in 0..whole.len() - 1 {
        assert!(parse_manifest(&whole[..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(format_manifest(&parse_manifest(&whole).unwrap()), whole);
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let text = f.error(f.find(None));
    assert!(
        text.starts_with("DIR/vendor/.llama.cpp.manifest is damaged: "),
        "{text}"
    );
    assert!(
        text.ends_with("; run `cargo xtask vendor` to restore it"),
        "{text}"
    );
}

#[test]
fn refuses_a_damaged_archive_and_leaves_the_old_tree() {
    let f = Fixture::new();
    f.unpack().unwrap();
    let archive = f.path("cache/downloads/p.tar.gz");
    let bytes = fs::read(&archive).unwrap();
    fs::write(&archive, &bytes[..bytes.len() / 2]).unwrap();
    let text = f.error(f.unpack());
    assert!(
        text.starts_with("DIR/cache/downloads/p.tar.gz is truncated or edited: its sha256 is "),
        "{text}"
    );
    assert!(
        text.ends_with("; run `cargo xtask vendor` to restore it"),
        "{text}"
    );
    f.find(None).unwrap();
}

#[test]
fn refuses_an_archive_with_another_tree() {
    let mut f = Fixture::new();
    f.pin.upstream.manifest_sha256 = "0".into();
    let text = f.error(f.unpack());
    assert!(
        text.contains("does not hold the tree that UPSTREAM.toml pins: manifest-sha256 is "),
        "{text}"
    );
    assert!(!f.path("vendor/llama.cpp").exists() && !f.path("vendor/.llama.cpp.new").exists());
}

#[test]
fn falls_back_to_the_cache_then_names_the_command() {
    let f = Fixture::new();
    let source = f.find(None).unwrap();
    assert!(source.pinned && source.root.starts_with(f.path("scratch")));
    // A second build uses the same tree, and one that was edited is made anew.
    fs::write(source.root.join("src/a.cpp"), "x").unwrap();
    f.find(None).unwrap();
    fs::remove_file(f.path("cache/downloads/p.tar.gz")).unwrap();
    assert_eq!(
        f.error(f.find(None)),
        "the llama.cpp source is missing: no DIR/vendor/llama.cpp and no p.tar.gz in the cache folder; \
         run `cargo xtask vendor` in a clone of this repository, or set LLAMA_SYS_SOURCE_DIR to a llama.cpp checkout"
    );
}

#[test]
fn uses_a_checkout_of_the_users_own() {
    let f = Fixture::new();
    fs::create_dir(f.path("made/build")).unwrap();
    fs::write(f.path("made/build/CMakeCache.txt"), "").unwrap();
    assert!(f.find(Some("made")).unwrap().pinned);
    fs::write(f.path("made/src/a.cpp"), "b\n").unwrap();
    let source = f.find(Some("made")).unwrap();
    assert!(!source.pinned && source.files.len() == 3);
    assert_eq!(
        f.error(f.find(Some("vendor"))),
        "LLAMA_SYS_SOURCE_DIR=DIR/vendor cannot be used: it is not a llama.cpp checkout (no include/llama.h)"
    );

    import(&f.path("made"), &f.path("vendor/llama.cpp")).unwrap();
    let copy = f.find(None).unwrap();
    assert!(!copy.pinned && copy.files == source.files);
}

#[test]
fn cache_folder() {
    let check = |xdg: Option<&str>, home: Option<&str>, want: Option<&str>| {
        assert_eq!(
            cache_dir(xdg.map(Into::into), home.map(Into::into)),
            want.map(PathBuf::from)
        );
    };
    check(Some("/c"), Some("/h"), Some("/c/rys"));
    // The XDG specification says to ignore a relative path.
    check(Some("c"), Some("/h"), Some("/h/.cache/rys"));
    check(None, Some("/h"), Some("/h/.cache/rys"));
    check(None, None, None);
}
