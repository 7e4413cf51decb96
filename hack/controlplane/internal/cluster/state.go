// Package cluster brings one control plane up and down and remembers it in a folder.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth.dev/hack/controlplane/internal/kube"
	"berth.dev/hack/controlplane/internal/proc"
	"berth.dev/hack/controlplane/internal/tools"
)

const stateFile = "plane.json"

// State is what `up` leaves behind for the other commands.
type State struct {
	Dir        string `json:"-"`
	Kubeconfig string `json:"kubeconfig"`
	Server     string `json:"server"`
	// External is set for a cluster that we only use.
	External bool                     `json:"external,omitempty"`
	Etcd     string                   `json:"etcd,omitempty"`
	Tools    tools.Paths              `json:"tools,omitempty"`
	Procs    map[string]*proc.Process `json:"processes,omitempty"`
}

// Load reads the state of a folder.
func Load(dir string) (*State, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no control plane in %s: run `plane up --dir %s` first", dir, dir)
	}
	if err != nil {
		return nil, err
	}
	state := &State{Dir: dir}
	if err := json.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
	}
	return state, nil
}

// save replaces the file in one step: a reader sees the old state or the new one.
func (s *State) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, stateFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Admin returns a client with all rights.
func (s *State) Admin() (*kube.Client, error) {
	if s.External {
		return kube.FromKubeconfig(s.Tools[tools.Kubectl], s.Kubeconfig)
	}
	return kube.New(s.Server, kube.Files{
		CA:   s.pki("ca.crt"),
		Cert: s.pki("admin.crt"),
		Key:  s.pki("admin.key"),
	})
}

func (s *State) pki(name string) string { return filepath.Join(s.Dir, "pki", name) }

// lockDir keeps two commands from changing one plane at once. It is released at the latest when this process ends.
func lockDir(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}
