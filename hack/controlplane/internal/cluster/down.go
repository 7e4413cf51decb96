package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"berth.dev/hack/controlplane/internal/proc"
	"berth.dev/hack/controlplane/internal/tools"
)

// order in which processes are listed and ended: clients before servers, so that nothing logs a broken connection.
var order = []string{tools.Kwok, tools.Manager, tools.APIServer, tools.Etcd}

// Down ends the processes of a folder and removes their data; logs stay. A folder without a plane is not an error.
func Down(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, stateFile)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	state, err := Load(dir)
	if err != nil {
		return err
	}
	if err := state.stopAll(); err != nil {
		return err
	}
	return errors.Join(state.clean(), os.RemoveAll(filepath.Join(dir, stateFile)))
}

// stopAll kills without grace: nothing here has data worth saving.
func (s *State) stopAll() error {
	var failures []error
	for _, name := range order {
		if process := s.Procs[name]; process != nil {
			failures = append(failures, process.Stop(0))
		}
	}
	return errors.Join(failures...)
}

// clean removes what a run leaves, all of it made by us.
func (s *State) clean() error {
	var failures []error
	for _, name := range []string{"etcd", "pki", "kwok", "admin.kubeconfig"} {
		failures = append(failures, os.RemoveAll(filepath.Join(s.Dir, name)))
	}
	return errors.Join(failures...)
}

// freshLogs drops the logs of an earlier run in this folder: a failure is explained by the end of a log, which must be this run's.
func (s *State) freshLogs() error {
	var failures []error
	for _, name := range order {
		if err := os.Remove(filepath.Join(s.Dir, "logs", name+".log")); !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (s *State) anyAlive() bool {
	for _, process := range s.Procs {
		if process.Alive() {
			return true
		}
	}
	return false
}

// Status of one process.
type Status struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Alive bool   `json:"alive"`
}

// Status lists the processes.
func (s *State) Status() []Status {
	var all []Status
	for _, name := range order {
		if process := s.Procs[name]; process != nil {
			all = append(all, Status{name, process.PID, process.Alive()})
		}
	}
	return all
}

// Signal sends a signal to one process of the plane, for fault tests.
func (s *State) Signal(name string, signal syscall.Signal) error {
	process, err := s.process(name)
	if err != nil {
		return err
	}
	return process.Signal(signal)
}

// Kill ends one process at once and returns when it is gone.
func Kill(dir, name string) error {
	return change(dir, name, func(_ *State, process *proc.Process) error { return process.Stop(0) })
}

// Restart ends one process, if it runs, and starts it again as before: same port, same data.
func Restart(dir, name string, grace time.Duration) error {
	return change(dir, name, func(state *State, process *proc.Process) error {
		if err := process.Stop(grace); err != nil {
			return err
		}
		return state.launch(process.Spec)
	})
}

func change(dir, name string, act func(*State, *proc.Process) error) error {
	state, err := Load(dir)
	if err != nil {
		return err
	}
	unlock, err := lockDir(state.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if state, err = Load(dir); err != nil {
		return err
	}
	process, err := state.process(name)
	if err != nil {
		return err
	}
	return act(state, process)
}

func (s *State) process(name string) (*proc.Process, error) {
	process := s.Procs[name]
	if process == nil {
		return nil, fmt.Errorf("no process %q in this plane: there are %v", name, order)
	}
	return process, nil
}
