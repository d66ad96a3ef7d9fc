//go:build unix

package endtoend

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/dashboard/browsertest"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// The dashboard in a real browser beside a whole fleet: what was sent is on the page to the
// last notification, also after a worker was killed; a route's pause and a worker's end are
// there in time; a look-up says why something did not arrive, or not yet; and the page
// outlives its server.
func TestThePageShowsAFleet(t *testing.T) {
	b := newBoard(t)
	b.saysWhyItDidNotArrive(b.showsWhatWasSent())
	b.showsAPause()
	b.losesNothingByAKill()
	b.goesOnAfterARestart()
	b.page.Clean(b.host, browsertest.Restarted()...)
}

const (
	scriptName = "<img src=x onerror=alert(1)>" // of an app and a type
	cappedType = "capped"                       // of the rule below; others are not limited
	capRule    = "capped-per-day"
	capMax     = 3
	// asked is how long the provider asks for a pause: longer than any page may take to show it.
	asked = 10 * time.Second
)

// board is a fleet of two workers, its dashboard, and what the page must say.
type board struct {
	*world
	users     map[crowd.Kind][]crowd.User // with one device each, but for those who have none
	workers   map[string]*fleet.Process   // by name
	dashboard *fleet.Process
	host      string // of the page
	page      *browsertest.Tab

	batch   []fleet.Record // not yet produced
	copies  []fleet.Record // of what was delivered
	want    map[kind]int
	refused atomic.Pointer[time.Time] // when FCM first refused since it was told to
}

// kind is a row of the page's outcomes. All are of the fleet's only lane.
type kind struct {
	state, app, typ, provider, reason string
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{users: map[crowd.Kind][]crowd.User{}, workers: map[string]*fleet.Process{}, want: map[kind]int{}}
	chrome := browsertest.Start(t)
	b.world = newWorld(t, setup{watch: b.watchRefusals, configure: func(c *configs.Config) {
		c.Limits.Rules = []configs.Rule{{Name: capRule, Per: "user_type", Types: []string{cappedType}, Max: capMax, Window: 24 * time.Hour}}
		// A paused route keeps what waits: the hold topic's least wait is half a minute.
		c.Gates.HoldAfter, c.Gates.HoldSpan = time.Minute, time.Minute
		// So slow that there is a middle to be killed in, and soon without the killed one.
		c.Send.InFlight, c.Status.Rows, c.Status.Unacknowledged = 25, 10, 25
		c.Kafka.SessionTimeout = 6 * time.Second
	}})
	o := crowd.Options{Seed: 1, App: fleet.App, Users: 60, OptedOut: 0.2, DeadToken: 0.1, NoDevice: 0.1, Devices: 1}
	people, err := crowd.New(o)
	check(t, err)
	for i := range people.Users {
		if u := people.User(i); u.Kind != crowd.OptedOut || u.Preferences.OptOutAll {
			b.users[u.Kind] = append(b.users[u.Kind], u)
		}
	}
	b.populate(people)
	for _, name := range []string{"worker-a", "worker-b"} {
		b.workers[name], err = b.StartOtherWorker(func(c *configs.Config) { c.Kafka.ClientID = name })
		check(t, err)
	}
	b.serve("127.0.0.1:0")
	b.page = chrome.Open("http://" + b.host + "/")
	b.page.Until(browsertest.Text("#status", "live"))
	for name := range b.workers {
		b.page.Until(b.row(name, "partitions", "2 of 4"))
	}
	return b
}

// serve starts the dashboard at an address.
func (b *board) serve(listen string) {
	b.t.Helper()
	var err error
	b.dashboard, err = b.StartDashboard(listen)
	check(b.t, err)
	b.host, err = b.dashboard.AwaitPage(waiting(b.t))
	check(b.t, err)
}

func (b *board) watchRefusals(a *sim.Arrival) {
	if a.What == sim.Decided && a.Reply == sim.FCMUnavailable {
		at := a.At
		b.refused.CompareAndSwap(nil, &at)
	}
}

// row is an expression: a worker is on the page, and a column says this of it.
func (b *board) row(worker, column, says string) string {
	return fmt.Sprintf("[...document.querySelectorAll('#workers tbody tr')].some((r) => r.querySelector('[data-name=worker]').textContent === %q && r.querySelector('[data-name=%s]').textContent === %q)",
		worker, column, says)
}

// add makes up a notification to a user, to be produced with the next ones, and says what
// the page will count it as. change may change the message. It returns the id.
func (b *board) add(u crowd.User, typ string, k kind, change ...func(map[string]any)) (id string) {
	id = crowd.Mint(time.Now())
	message := map[string]any{"id": id, "app": fleet.App, "user_id": u.ID, "type": typ, "title": "A title"}
	for _, c := range change {
		c(message)
	}
	value, err := json.Marshal(message)
	check(b.t, err)
	b.batch = append(b.batch, fleet.Record{Key: []byte(u.ID), Value: value})
	k.app, k.typ = message["app"].(string), typ
	b.want[k]++
	return id
}

// deliver makes up one that is delivered.
func (b *board) deliver(u crowd.User, typ string) (id string) {
	return b.add(u, typ, kind{state: push.StateDelivered.String(), provider: u.Devices[0].Platform.String()})
}

func (b *board) produce() {
	b.t.Helper()
	check(b.t, b.Produce(waiting(b.t), b.batch))
	b.batch = nil
}

// showsAll waits until all is done, and then until the page says what became of it: these
// outcomes exactly, and no others but those of attempts on the way.
func (b *board) showsAll() {
	b.t.Helper()
	check(b.t, b.AwaitDone(waiting(b.t)))
	var rows []string
	for k, n := range b.want {
		rows = append(rows, strings.Join([]string{k.state, fleet.Lane, k.app, k.typ, k.provider, k.reason, fmt.Sprint(n)}, "|"))
	}
	slices.Sort(rows)
	const shown = `[...document.querySelectorAll('#outcomes tbody tr')]
		.map((r) => ['state', 'lane', 'app', 'type', 'provider', 'reason', 'n'].map((name) => r.querySelector('td[data-name=' + name + ']').textContent).join('|'))
		.filter((row) => !row.startsWith('RETRYING|') && !row.startsWith('HELD|')).sort().join('\n')`
	b.page.Until(fmt.Sprintf("%s === %q", shown, strings.Join(rows, "\n")))
	b.page.Until(`document.querySelector('#outcomes-total').textContent.split(' ')[0].replaceAll(',', '') ===
		String([...document.querySelectorAll('#outcomes td[data-name=n]')].reduce((sum, n) => sum + Number(n.textContent.replaceAll(',', '')), 0))`)
	b.page.Until("!" + browsertest.Has("#doubts li", "nobody told") + " && document.querySelectorAll('#gaps li').length === 0")
}
