//go:build unix

package chaos

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
)

// observeGateways makes those who call gateways, and who reads what becomes of that in the
// lane.
func (u *run) observeGateways(ctx context.Context) (err error) {
	u.callers = newCallers(u.world, u.Seed)
	if u.Scenario.through.messages > 0 {
		u.topic = newTopic(u.world, &u.Options)
		u.Progress("%d users subscribe", u.topic.audience)
		if err := u.topic.open(ctx); err != nil {
			return err
		}
	}
	u.reader, err = newReader(u.world, u.ledger, u.callers)
	return err
}

// callGateways sends all there is to send, and returns when all is answered for good and
// every fan-out has ended.
func (u *run) callGateways(ctx context.Context) error {
	var calling sync.WaitGroup
	var errs [2]error
	if u.Scenario.through.calls {
		calling.Go(func() { errs[0] = u.callers.run(ctx, u.records, u.Scenario.Rate) })
	}
	if u.topic != nil {
		calling.Go(func() { errs[1] = u.topic.run(ctx, u.Length) })
	}
	calling.Wait()
	return errors.Join(errs[:]...)
}

// closeLane ends those who have filled the ledger of the lane, and asks gateways what became
// of all that.
func (u *run) closeLane(ctx context.Context, l *invariants.Ledgers) error {
	if u.producer != nil {
		u.producer.close()
		return nil
	}
	defer u.reader.close()
	ctx, cancel := context.WithTimeoutCause(ctx, lookPatience, errors.New("gateways were asked for too long"))
	defer cancel()
	if err := errors.Join(u.callers.receipts(ctx), u.reader.catchUp(ctx)); err != nil {
		return err
	}
	l.Fanouts, l.Changes = u.topic.seal()
	var err error
	l.Calls, err = u.callers.seal(filepath.Join(u.Dir, "calls.jsonl"))
	return err
}
