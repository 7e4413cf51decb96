package proc

import (
	"path/filepath"
	"testing"
	"time"
)

func start(t *testing.T, script string) *Process {
	t.Helper()
	process, err := Start(Spec{Name: "p", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Stop(0) })
	return process
}

func TestAStoppedProcessIsGoneWithItsChildren(t *testing.T) {
	process := start(t, "sleep 1000 & sleep 1000; true")
	if !process.Alive() {
		t.Fatal("it never lived")
	}
	if err := process.Stop(0); err != nil {
		t.Fatal(err)
	}
	if process.Alive() {
		t.Error("it survives")
	}
}

func TestAProcessThatIgnoresTermIsKilledAfterItsGrace(t *testing.T) {
	process := start(t, "trap '' TERM; while true; do sleep 0.1; done")
	if err := process.Stop(100 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if process.Alive() {
		t.Error("it survives")
	}
}

func TestAPidGivenToSomebodyElseIsNotOurs(t *testing.T) {
	process := start(t, "sleep 1000")
	if process.Born == 0 {
		t.Skip("no /proc here: a pid is all there is")
	}
	stranger := &Process{Spec: process.Spec, PID: process.PID, Born: process.Born + 1}
	if stranger.Alive() {
		t.Error("a process born at another time was taken for ours")
	}
	if err := stranger.Stop(0); err != nil || !process.Alive() {
		t.Errorf("the stranger was touched: %v", err)
	}
}
