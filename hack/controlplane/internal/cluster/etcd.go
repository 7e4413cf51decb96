package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// CompactEtcd forgets all history up to now: watches and continued lists from older revisions answer 410 Gone.
func (s *State) CompactEtcd(ctx context.Context) (revision int64, err error) {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := s.etcd(ctx, "/v3/maintenance/status", map[string]any{}, &status); err != nil {
		return 0, err
	}
	revision, err = strconv.ParseInt(status.Header.Revision, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("etcd's revision: %w", err)
	}
	request := map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true}
	return revision, s.etcd(ctx, "/v3/kv/compaction", request, nil)
}

// etcd sends one request to the JSON gateway.
func (s *State) etcd(ctx context.Context, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Etcd+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: HTTP %d: %s", path, response.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
