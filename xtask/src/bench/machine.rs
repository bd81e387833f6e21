//! The machine that the figures are from.

use std::fmt;
use std::process::Command;
use std::thread::available_parallelism;

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// A load average above this at the start makes times doubtful.
const QUIET: f64 = 1.0;

/// Description of a machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub ram_bytes: u64,
    pub os: String,
    pub compiler: String,
    /// Processes that wanted to run in the last minute, on average, before the bench.
    pub load_average: f64,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Machine {
        let system = System::new_with_specifics(
            RefreshKind::nothing()
                .with_cpu(CpuRefreshKind::nothing())
                .with_memory(MemoryRefreshKind::nothing().with_ram()),
        )
        .ok();
        let cpu = system
            .as_ref()
            .and_then(|s| Some(s.cpus().first()?.brand().trim().to_owned()))
            .filter(|b| !b.is_empty());
        let os = [
            System::long_os_version().ok(),
            System::kernel_version().ok().map(|k| format!("kernel {k}")),
        ];
        Machine {
            cpu: cpu.unwrap_or_else(|| "unknown CPU".into()),
            cores: available_parallelism().map_or(1, usize::from),
            ram_bytes: system.as_ref().map_or(0, System::total_memory),
            os: os.into_iter().flatten().collect::<Vec<_>>().join(", "),
            compiler: compiler().unwrap_or_else(|| "unknown compiler".into()),
            load_average: System::load_average().map_or(f64::NAN, |l| l.one),
        }
    }

    /// Whether times taken now can be trusted.
    pub fn is_quiet(&self) -> bool {
        self.load_average <= QUIET
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(
            f,
            "{}, {} core{plural}, {:.1} GiB RAM, {}, {}, load average {:.2} at the start",
            self.cpu,
            self.cores,
            self.ram_bytes as f64 / f64::from(1 << 30),
            self.os,
            self.compiler,
            self.load_average
        )
    }
}

/// First line of what the compiler says about itself; cmake takes `CXX` or `c++` too.
fn compiler() -> Option<String> {
    let program = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let out = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.lines().next().map(Into::into)
}
