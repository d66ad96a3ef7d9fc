package embedded

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// RedisBloom's settings for a filter that is made by an add.
const (
	defaultRate      = 0.01
	defaultCapacity  = 100
	defaultExpansion = 2
)

var (
	errArguments = errors.New("ERR wrong number of arguments")
	errExists    = errors.New("ERR item exists")
	errNotFound  = errors.New("ERR not found")
	errSyntax    = errors.New("ERR syntax error")
)

// register adds the BF.* commands to a server.
func (f *filters) register(srv *server.Server) error {
	for _, cmd := range []struct {
		name string
		args int // at least
		run  func(c call) error
	}{
		{"BF.RESERVE", 3, f.reserve},
		{"BF.ADD", 2, f.addOne},
		{"BF.MADD", 2, f.addMany},
		{"BF.INSERT", 3, f.insert},
		{"BF.EXISTS", 2, f.existsOne},
		{"BF.MEXISTS", 2, f.existsMany},
		{"BF.CARD", 1, f.card},
		{"BF.INFO", 1, f.info},
	} {
		err := srv.Register(cmd.name, func(c *server.Peer, name string, args []string) {
			err := fmt.Errorf("%w for '%s' command", errArguments, strings.ToLower(name))
			if len(args) >= cmd.args {
				err = cmd.run(call{srv: srv, peer: c, args: args})
			}
			if err != nil {
				c.WriteError(err.Error())
			}
		})
		if err != nil {
			return fmt.Errorf("registering %s: %w", cmd.name, err)
		}
	}
	return nil
}

// call is one command. A command that returns an error has written nothing.
type call struct {
	srv  *server.Server
	peer *server.Peer
	args []string
}

// shape is how a filter is to be made.
type shape struct {
	rate      float64
	capacity  int
	expansion int // 0 = does not scale
	noCreate  bool
}

func (f *filters) reserve(c call) error {
	var s shape
	var err error
	if s.rate, err = strconv.ParseFloat(c.args[1], 64); err != nil || s.rate <= 0 || s.rate >= 1 {
		return errors.New("ERR (0 < error rate range < 1)")
	}
	if s.capacity, err = strconv.Atoi(c.args[2]); err != nil || s.capacity < 1 {
		return errors.New("ERR (capacity should be larger than 0)")
	}
	s.expansion = defaultExpansion
	if rest, err := s.options(c.args[3:]); err != nil {
		return err
	} else if rest != nil {
		return errSyntax
	}
	if b, err := f.get(c.srv, c.peer, c.args[0]); err != nil {
		return err
	} else if b != nil {
		return errExists
	}
	made, err := f.create(c.srv, c.peer, c.args[0], newBloom(s.rate, s.capacity, s.expansion))
	switch {
	case err != nil:
		return err
	case !made:
		return errExists
	}
	c.peer.WriteOK()
	return nil
}

// options reads those that follow a key, up to ITEMS, and returns the items;
// nil when there are none.
func (s *shape) options(args []string) ([]string, error) {
	for i := 0; i < len(args); i++ {
		name := strings.ToUpper(args[i])
		switch name {
		case "NONSCALING":
			s.expansion = 0
			continue
		case "NOCREATE":
			s.noCreate = true
			continue
		case "ITEMS":
			if i+1 == len(args) {
				return nil, nil
			}
			return args[i+1:], nil
		}
		if i++; i == len(args) {
			return nil, errSyntax
		}
		var err error
		switch name {
		case "CAPACITY":
			if s.capacity, err = strconv.Atoi(args[i]); err != nil || s.capacity < 1 {
				return nil, errors.New("ERR Bad capacity")
			}
		case "ERROR":
			if s.rate, err = strconv.ParseFloat(args[i], 64); err != nil || s.rate <= 0 || s.rate >= 1 {
				return nil, errors.New("ERR Bad error rate")
			}
		case "EXPANSION":
			if s.expansion, err = strconv.Atoi(args[i]); err != nil || s.expansion < 1 {
				return nil, errors.New("ERR Bad expansion")
			}
		default:
			return nil, errors.New("ERR Unknown argument received")
		}
	}
	return nil, nil
}

func (f *filters) addOne(c call) error {
	if len(c.args) != 2 {
		return errArguments
	}
	b, err := f.open(c, shape{rate: defaultRate, capacity: defaultCapacity, expansion: defaultExpansion})
	if err != nil {
		return err
	}
	added, err := b.add(c.args[1])
	if err != nil {
		return err
	}
	c.peer.WriteInt(number(added))
	return nil
}

func (f *filters) addMany(c call) error {
	b, err := f.open(c, shape{rate: defaultRate, capacity: defaultCapacity, expansion: defaultExpansion})
	if err != nil {
		return err
	}
	addAll(c.peer, b, c.args[1:])
	return nil
}

func (f *filters) insert(c call) error {
	s := shape{rate: defaultRate, capacity: defaultCapacity, expansion: defaultExpansion}
	items, err := s.options(c.args[1:])
	if err != nil {
		return err
	}
	if items == nil {
		return fmt.Errorf("%w for 'bf.insert' command", errArguments)
	}
	b, err := f.open(c, s)
	if err != nil {
		return err
	}
	addAll(c.peer, b, items)
	return nil
}

// open finds the filter of the first argument or makes it.
func (f *filters) open(c call, s shape) (*bloom, error) {
	for {
		b, err := f.get(c.srv, c.peer, c.args[0])
		if err != nil || b != nil {
			return b, err
		}
		if s.noCreate {
			return nil, errNotFound
		}
		b = newBloom(s.rate, s.capacity, s.expansion)
		made, err := f.create(c.srv, c.peer, c.args[0], b)
		if err != nil || made {
			return b, err
		}
		// Another connection made it in between: take that one.
	}
}

// addAll answers one number per item, and as RedisBloom does ends at the first
// that found no room with an error in its place.
func addAll(peer *server.Peer, b *bloom, items []string) {
	answers := make([]bool, 0, len(items))
	var full error
	for _, item := range items {
		added, err := b.add(item)
		if err != nil {
			full = err
			break
		}
		answers = append(answers, added)
	}
	peer.Block(func(w *server.Writer) {
		n := len(answers)
		if full != nil {
			n++
		}
		w.WriteLen(n)
		for _, added := range answers {
			w.WriteInt(number(added))
		}
		if full != nil {
			w.WriteError(full.Error())
		}
	})
}

// look finds a filter to ask. As with RedisBloom, a key that is no filter has
// no items.
func (f *filters) look(c call) (*bloom, error) {
	b, err := f.get(c.srv, c.peer, c.args[0])
	if errors.Is(err, errWrongType) {
		return nil, nil
	}
	return b, err
}

func (f *filters) existsOne(c call) error {
	if len(c.args) != 2 {
		return errArguments
	}
	b, err := f.look(c)
	if err != nil {
		return err
	}
	c.peer.WriteInt(number(b != nil && b.has(c.args[1])))
	return nil
}

func (f *filters) existsMany(c call) error {
	b, err := f.look(c)
	if err != nil {
		return err
	}
	items := c.args[1:]
	answer := make([]byte, 0, 4*len(items)+16)
	answer = append(answer, '*')
	answer = strconv.AppendInt(answer, int64(len(items)), 10)
	answer = append(answer, "\r\n"...)
	for _, item := range items {
		if b != nil && b.has(item) {
			answer = append(answer, ":1\r\n"...)
		} else {
			answer = append(answer, ":0\r\n"...)
		}
	}
	c.peer.WriteRaw(string(answer))
	return nil
}

func (f *filters) card(c call) error {
	b, err := f.get(c.srv, c.peer, c.args[0])
	if err != nil {
		return err
	}
	items := 0
	if b != nil {
		_, _, _, items = b.size()
	}
	c.peer.WriteInt(items)
	return nil
}

// info answers all fields; the form with one field name is not needed here.
func (f *filters) info(c call) error {
	b, err := f.get(c.srv, c.peer, c.args[0])
	if err != nil {
		return err
	}
	if b == nil {
		return errNotFound
	}
	capacity, bytes, layers, items := b.size()
	c.peer.Block(func(w *server.Writer) {
		w.WriteMapLen(5)
		for _, field := range []struct {
			name  string
			value int
		}{
			{"Capacity", capacity},
			{"Size", bytes},
			{"Number of filters", layers},
			{"Number of items inserted", items},
			{"Expansion rate", b.expansion},
		} {
			w.WriteInline(field.name)
			w.WriteInt(field.value)
		}
	})
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
