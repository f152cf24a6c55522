use super::*;

#[test]
fn install_command_line_matches_request() {
    let plain = Install::default();
    let full = Install {
        system_uri: "10.0.0.1:5000/os:v1".into(),
        snapshotter_type: "btrfs".into(),
        snapshotter_max_snaps: 4,
        debug: true,
        eject_cd: true,
        no_format: true,
        ..Install::default()
    };
    let never = ["install", "--reboot=false", "--poweroff=false", "--force"];
    let cases: [(&str, &Install, Vec<&str>, usize); 2] = [
        (
            "plain",
            &plain,
            [&never[..], &["--disable-boot-entry", "--cloud-init=/oem.yaml", "/dev/vda"]].concat(),
            0,
        ),
        (
            "everything",
            &full,
            [
                &["--debug"],
                &never[..],
                &[
                    "--system=oci:10.0.0.1:5000/os:v1",
                    "--snapshotter.type=btrfs",
                    "--eject-cd",
                    "--no-format",
                    "--disable-boot-entry",
                    "--cloud-init=/oem.yaml",
                    "/dev/vda",
                ],
            ]
            .concat(),
            1,
        ),
    ];
    for (name, request, args, env) in cases {
        let command = install_command(&Installation {
            device: Path::new("/dev/vda"),
            request,
            cloud_init: &["/oem.yaml".into()],
            registry: None,
        });
        assert_eq!(command.args, args, "{name}");
        assert_eq!(command.env.len(), env, "{name}");
    }
}

#[test]
fn an_upgrade_never_reboots_by_itself() {
    let cases = [("oci:lab/os:v2", "oci:lab/os:v2"), ("10.0.2.100:5000/os:v1", "oci:10.0.2.100:5000/os:v1")];
    for (given, want) in cases {
        let command = upgrade_command(&Image::parse(given).unwrap());
        assert_eq!(command.program, "elemental");
        assert_eq!(command.args, ["upgrade", "--reboot=false", "--system", want]);
    }
}

#[test]
fn whole_journal_is_rotated_and_removed() {
    let command = clear_journal_command();
    assert_eq!((command.program.as_str(), command.args.len()), ("journalctl", 2));
    assert_eq!(command.args, ["--rotate", "--vacuum-time=1s"]);
}

#[test]
fn a_reboot_is_asked_for_harder_each_time() {
    let cases: [(RebootMethod, &[&str]); 3] = [
        (RebootMethod::Orderly, &["reboot"]),
        (RebootMethod::Forced, &["reboot", "--force"]),
        (RebootMethod::Immediate, &["reboot", "--force", "--force"]),
    ];
    for (method, args) in cases {
        assert_eq!(reboot_command(method).args, args);
    }
}

#[test]
fn a_custom_instruction_is_run_as_written() {
    let command = custom_command(&CustomInstruction {
        name: "n".into(),
        command: "/bin/echo".into(),
        args: vec!["a b".into()],
        env: vec!["A=b=c".into(), "nonsense".into()],
        save_output: true,
    });
    assert_eq!((command.program.as_str(), command.args), ("/bin/echo", vec!["a b".into()]));
    assert_eq!(command.env, [("A".to_owned(), "b=c".to_owned())]);
}

#[tokio::test]
async fn custom_files_are_made_replaced_and_removed() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let system = Elemental::new(root.clone());
    let staged = directory.path().join("staged");
    fs::write(&staged, "$content").unwrap();
    // Only root may give a file to another user.
    let user = nix::unistd::getuid();
    let (uid, gid) = if user.is_root() { (7, 8) } else { (user.as_raw(), nix::unistd::getgid().as_raw()) };
    let place = async |path: &str, mode, action| {
        let placement = Placement { path: Path::new(path), mode, uid, gid, action };
        system.place_file(&Job::named("custom"), &placement).await.unwrap();
    };
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    let owner = |path: &str| fs::metadata(root.join(path)).map(|file| (file.uid(), file.gid())).unwrap();
    for want in [0o640, 0o755] {
        place("/srv/new/file $x", want, PlacementAction::File { staged: &staged }).await;
        assert_eq!(fs::read_to_string(root.join("/srv/new/file $x")).unwrap(), "$content");
        assert_eq!((mode("/srv/new/file $x"), owner("/srv/new/file $x")), (want, (uid, gid)));
    }
    place("/srv/directory", 0o700, PlacementAction::Directory).await;
    assert_eq!((mode("/srv/directory"), owner("/srv/directory")), (0o700, (uid, gid)));
    place("/srv/new", 0, PlacementAction::Delete).await;
    assert!(!root.join("/srv/new").exists());
}

#[test]
fn secrets_proxy_replaces_that_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    root.put("/etc/sysconfig/proxy", "HTTPS_PROXY=http://host:1\nNO_PROXY=.example\n");
    let plain = RegistryAccess { authorities: Some("of the site".into()), ..RegistryAccess::default() };
    let named = RegistryAccess { no_proxy: Some("*".into()), ..plain.clone() };
    let host = [("HTTPS_PROXY", "http://host:1"), ("NO_PROXY", ".example")];
    for (name, registry, want) in [
        ("no Secret", None, &host[..]),
        ("a Secret without proxy", Some(&plain), &host),
        ("a Secret that needs none", Some(&named), &[("NO_PROXY", "*")]),
    ] {
        let want: Vec<_> =
            want.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(choose_proxy(&root, registry).variables().collect::<Vec<_>>(), want, "{name}");
    }
}
