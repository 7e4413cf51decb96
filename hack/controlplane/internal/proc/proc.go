// Package proc starts processes that outlive us, remembers them by more than a pid, and ends exactly those.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Spec is how a process is started, kept so that it can be started again the same way.
type Spec struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	Log  string   `json:"log"`
}

// Process is a started Spec. Born is the kernel's start time of the pid (0 where it has no /proc),
// so that a pid given to somebody else since is never signalled.
type Process struct {
	Spec
	PID  int    `json:"pid"`
	Born uint64 `json:"born"`
}

// Start runs the command in a session of its own, with output appended to its log.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(spec.Path, spec.Args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), spec.Env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go func() { _ = command.Wait() }() // reap
	pid := command.Process.Pid
	return &Process{Spec: spec, PID: pid, Born: Born(pid)}, nil
}

// Alive tells whether this very process still runs.
func (p *Process) Alive() bool { return p.PID > 0 && Same(p.PID, p.Born) }

// Same tells whether the pid still belongs to the process born then.
func Same(pid int, born uint64) bool {
	if now, found := stat(pid); found {
		return !now.over && (born == 0 || now.born == born)
	}
	return !procMounted() && syscall.Kill(pid, 0) == nil
}

// Born returns the start time of a pid, to hand to Same later.
func Born(pid int) uint64 {
	now, _ := stat(pid)
	return now.born
}

// Signal sends to the whole process group.
func (p *Process) Signal(signal syscall.Signal) error {
	if !p.Alive() {
		return fmt.Errorf("%s (pid %d) is not running", p.Name, p.PID)
	}
	return syscall.Kill(-p.PID, signal)
}

// Stop asks, waits for the grace, then kills. It returns once the process is gone.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Alive() {
		return nil
	}
	_ = p.Signal(syscall.SIGCONT) // a paused process cannot hear
	if grace > 0 {
		_ = p.Signal(syscall.SIGTERM)
		if p.gone(grace) {
			return nil
		}
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && p.Alive() {
		return err
	}
	if !p.gone(10 * time.Second) {
		return fmt.Errorf("%s (pid %d) survives SIGKILL", p.Name, p.PID)
	}
	return nil
}

func (p *Process) gone(within time.Duration) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if !p.Alive() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// life is what /proc says of a pid.
type life struct {
	born uint64
	// over: only a record waits to be reaped. A leader shows as a zombie while its threads still end and hold the process's
	// ports, hence the count of threads.
	over bool
}

// stat reads /proc; not found if there is no such process, or no /proc.
func stat(pid int) (life, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return life{}, false
	}
	// The command name may hold spaces and brackets: fields are counted after the last one.
	_, rest, found := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return life{}, false
	}
	born, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return life{}, false
	}
	return life{born: born, over: fields[0] == "X" || fields[0] == "Z" && (fields[17] == "0" || fields[17] == "1")}, true
}

func procMounted() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}
