package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cacheRoot is $XDG_CACHE_HOME/berth/controlplane, or the same under ~/.cache on every system, so that docs can name one place.
func cacheRoot() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "berth", "controlplane"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: set XDG_CACHE_HOME or HOME: %w", err)
	}
	return filepath.Join(home, ".cache", "berth", "controlplane"), nil
}

// cachePath is where the binary is, or will be, in the cache.
func cachePath(ctx context.Context, root string, spec Spec, pinned Version) (string, error) {
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}
	key, err := contentKey(ctx, root, spec, pinned)
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, key, spec.Name), nil
}

// ensure builds the binary unless somebody else does so while we wait for our turn.
func ensure(ctx context.Context, root string, spec Spec, pinned Version, path string, log Logf) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if isExecutable(path) {
		return nil
	}
	return build(ctx, root, spec, pinned, path, log)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// contentKey names a folder by all that decides the binary's content.
func contentKey(ctx context.Context, root string, spec Spec, pinned Version) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, "tools", spec.Module, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
	}
	version, err := goCommand(ctx, root, spec, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64").Output()
	if err != nil {
		return "", fmt.Errorf("go env: is Go installed and on PATH? %w", err)
	}
	fmt.Fprintf(sum, "%s%s\n", version, strings.Join(flags(spec, pinned), " "))
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// flags of the build. No debug information at all: it costs compile time here and nobody debugs these binaries.
func flags(spec Spec, pinned Version) []string {
	return []string{
		"-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", spec.ldflags(pinned),
	}
}

func goCommand(ctx context.Context, root string, spec Spec, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = filepath.Join(root, "tools", spec.Module)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	return command
}

// build compiles into a temporary name and renames, so that an interrupted build never looks finished.
func build(ctx context.Context, root string, spec Spec, pinned Version, path string, log Logf) error {
	log("building %s %s (about %s on 2 cores, once)…", spec.Name, pinned, spec.Took)
	start := time.Now()
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(temporary)
	args := append([]string{"build"}, flags(spec, pinned)...)
	command := goCommand(ctx, root, spec, append(args, "-o", temporary, spec.Package)...)
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	stop := heartbeat(spec.Name, start, log)
	err := command.Run()
	stop()
	if err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", spec.Package, command.Dir, err, tail(output.String(), 40))
	}
	log("built %s in %s", spec.Name, time.Since(start).Round(time.Second))
	return os.Rename(temporary, path)
}

// heartbeat shows that a long build is alive.
func heartbeat(name string, start time.Time, log Logf) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(30 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				log("  … %s: %s", name, time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(done) }
}

// tail keeps the end of a long output, where the error is.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// lock holds an advisory lock until unlock, or until this process dies.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
