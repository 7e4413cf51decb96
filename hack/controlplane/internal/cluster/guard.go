package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth.dev/hack/controlplane/internal/proc"
)

// StartGuard starts a small process that ends this plane when its owner is gone, however the owner dies.
func StartGuard(dir string, owner int) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return err
	}
	born := strconv.FormatUint(proc.Born(owner), 10)
	_, err = proc.Start(proc.Spec{
		Name: "guard", Path: self, Log: filepath.Join(dir, "logs", "guard.log"),
		Args: []string{"guard", "--dir", dir, "--owner", strconv.Itoa(owner), "--born", born},
	})
	return err
}

// Guard waits for the owner's end, then takes the plane down. It also ends when somebody else took the plane down.
func Guard(dir string, owner int, born uint64) error {
	seen := false
	for proc.Same(owner, born) {
		_, err := os.Stat(filepath.Join(dir, stateFile))
		if seen && err != nil {
			return nil
		}
		seen = seen || err == nil
		time.Sleep(300 * time.Millisecond)
	}
	return Down(dir)
}

// WaitOwner returns when the process is gone or the context ends.
func WaitOwner(ctx context.Context, owner int) {
	born := proc.Born(owner)
	for ctx.Err() == nil && os.Getppid() == owner && proc.Same(owner, born) {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}
