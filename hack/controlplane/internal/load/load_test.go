package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

func TestRackNamesRepeatInEveryBlock(t *testing.T) {
	nodes := Shape{Blocks: 2, Racks: 2, Nodes: 2}.List()
	if len(nodes) != 8 {
		t.Fatalf("%d nodes", len(nodes))
	}
	want := Node{Name: "b1-r0-n1", Block: "b1", Rack: "r0"}
	if nodes[5] != want {
		t.Errorf("node 5 is %v, want %v", nodes[5], want)
	}
}

func TestACountFillsAsManyBlocksAsItTakes(t *testing.T) {
	nodes := Shape{Racks: 2, Nodes: 3, Count: 13}.List()
	if last := nodes[len(nodes)-1]; len(nodes) != 13 || last.Name != "b2-r0-n0" {
		t.Errorf("%d nodes, the last %v", len(nodes), last)
	}
}

func TestEachRunsAllAndStopsAtTheFirstError(t *testing.T) {
	var done atomic.Int64
	if err := each(context.Background(), 4, 100, func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 100 {
		t.Errorf("%d of 100 done: %v", done.Load(), err)
	}
	broken := errors.New("broken")
	err := each(context.Background(), 4, 1000, func(_ context.Context, i int) error {
		if i == 10 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}
