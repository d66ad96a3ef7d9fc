package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change to one file. All mutants of a sample are compiled into
// one binary, in which an environment variable chooses the one that acts: so
// each costs the time of its tests, and none that of compiler and linker.
type mutant struct {
	File string `json:"file"` // from the module's root, with slashes
	Line int    `json:"line"`
	Func string `json:"func"`
	Kind string `json:"kind"`
	// The changed line before and after, without the white space around it.
	Before string `json:"before"`
	After  string `json:"after"`

	// What is written before and after the code that is changed, bytes start to
	// end of the file. %% stands for the mutant's number.
	start, end     int
	prefix, suffix string
}

// comparisons are what each operator becomes: at the boundary, and negated.
var comparisons = map[token.Token][2]token.Token{
	token.LSS: {token.LEQ, token.GEQ},
	token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ},
	token.GEQ: {token.GTR, token.LSS},
	token.EQL: {0, token.NEQ},
	token.NEQ: {0, token.EQL},
}

// operators are what the others become. Both results are computed, so nothing
// becomes a division, which could panic where the product does not.
var operators = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.SUB, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.AND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.SUB_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
	token.LAND: token.LOR, token.LOR: token.LAND,
}

// sites finds every place of a file that can be changed, and all the changes.
type sites struct {
	file  string
	src   []byte
	fset  *token.FileSet
	fn    string
	found []mutant
}

// mutants lists the mutants of one file, named from the module's root, in the
// order of the text.
func mutants(name string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	s := &sites{file: name, src: src, fset: fset}
	for _, decl := range file.Decls {
		s.fn = ""
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Body == nil {
				continue
			}
			s.fn = decl.Name.Name
			if decl.Recv != nil && len(decl.Recv.List) == 1 {
				s.fn = strings.TrimLeft(s.text(decl.Recv.List[0].Type), "*") + "." + s.fn
			}
			s.body(decl.Type, decl.Body)
		case *ast.GenDecl: // functions in variables
			ast.Inspect(decl, func(n ast.Node) bool {
				if lit, is := n.(*ast.FuncLit); is {
					s.body(lit.Type, lit.Body)
					return false
				}
				return true
			})
		}
	}
	slices.SortStableFunc(s.found, func(a, b mutant) int { return a.start - b.start })
	return s.found, nil
}

// body finds the sites of one function; functions within it have bodies, and
// results, of their own.
func (s *sites) body(fn *ast.FuncType, body *ast.BlockStmt) {
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.body(n.Type, n.Body)
			return false
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.ExprStmt:
			return !s.logs(n.X)
		case *ast.BlockStmt:
			s.statements(fn, n.List)
		case *ast.CaseClause:
			s.statements(fn, n.Body)
		case *ast.CommClause:
			s.statements(fn, n.Body)
		case *ast.IfStmt:
			if n.Else == nil && asksForRoom(n.Cond) {
				ast.Inspect(n.Body, visit)
				return false
			}
			s.expression(n)
		case *ast.CallExpr:
			if capacity(n) {
				for _, other := range n.Args[:len(n.Args)-1] {
					ast.Inspect(other, visit)
				}
				return false
			}
		default:
			s.expression(n)
		}
		return true
	}
	ast.Inspect(body, visit)
}

// capacity says that the last argument of a call is only how much room to make
// beforehand: nothing can be told from it.
func capacity(call *ast.CallExpr) bool {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		if fn.Name != "make" || len(call.Args) < 2 {
			return false
		}
		_, isMap := call.Args[0].(*ast.MapType)
		return isMap || len(call.Args) == 3
	case *ast.SelectorExpr:
		of, is := fn.X.(*ast.Ident)
		return is && of.Name == "slices" && fn.Sel.Name == "Grow"
	}
	return false
}

// asksForRoom says that a condition is about the capacity of something.
func asksForRoom(cond ast.Expr) bool {
	is := false
	ast.Inspect(cond, func(n ast.Node) bool {
		if call, isCall := n.(*ast.CallExpr); isCall {
			fn, isName := call.Fun.(*ast.Ident)
			is = is || isName && fn.Name == "cap"
		}
		return true
	})
	return is
}

// makesRoom says that a value is empty, and only says how much room it has.
func makesRoom(e ast.Expr) bool {
	call, is := e.(*ast.CallExpr)
	if !is || !capacity(call) || len(call.Args) != 3 {
		return false
	}
	length, is := call.Args[1].(*ast.BasicLit)
	return is && length.Value == "0"
}

// expression covers what computes and compares.
func (s *sites) expression(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, is := comparisons[n.Op]; is {
			if to[0] != 0 {
				s.boolean("boundary", n, s.operator(n, n.OpPos, n.Op, to[0]))
			}
			s.boolean("negation", n, s.operator(n, n.OpPos, n.Op, to[1]))
		} else if n.Op == token.LAND || n.Op == token.LOR {
			s.boolean("logic", n, s.operator(n, n.OpPos, n.Op, operators[n.Op]))
		} else if to, is := operators[n.Op]; is && pure(n) {
			with := s.operator(n, n.OpPos, n.Op, to)
			s.add("arithmetic", n, with, "mutationPick(%%, "+with+", ", ")")
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			s.boolean("negation", n, s.text(n.X))
		}
	case *ast.Ident:
		if n.Name == "true" && n.Obj == nil {
			s.boolean("constant", n, "false")
		} else if n.Name == "false" && n.Obj == nil {
			s.boolean("constant", n, "true")
		}
	case *ast.IfStmt:
		s.condition(n.Cond)
		if n.Else == nil {
			s.boolean("removed if", n.Cond, "false && ("+s.text(n.Cond)+")")
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			s.condition(n.Cond)
		}
	}
}

// condition negates what is no operator that expression already turns round.
func (s *sites) condition(cond ast.Expr) {
	switch cond.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr:
	default:
		s.boolean("negation", cond, "!("+s.text(cond)+")")
	}
}

// statements covers what does something. Only statements of a list can be made
// conditional.
func (s *sites) statements(fn *ast.FuncType, list []ast.Stmt) {
	for _, n := range list {
		switch n := n.(type) {
		case *ast.IncDecStmt:
			s.instead("increment", n, s.operator(n, n.TokPos, n.Tok, operators[n.Tok]))
		case *ast.AssignStmt:
			if to, is := operators[n.Tok]; is {
				s.instead("arithmetic", n, s.operator(n, n.TokPos, n.Tok, to))
			} else if n.Tok == token.ASSIGN && !slices.ContainsFunc(n.Lhs, blank) && !slices.ContainsFunc(n.Rhs, makesRoom) {
				s.remove(n)
			}
		case *ast.ExprStmt:
			if _, is := n.X.(*ast.CallExpr); is && !s.logs(n.X) {
				s.remove(n)
			}
		case *ast.DeferStmt, *ast.SendStmt:
			s.remove(n)
		case *ast.BranchStmt:
			if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
				s.remove(n)
			}
		case *ast.ReturnStmt:
			s.returned(fn, n)
		}
	}
}

// returned makes each returned value that is not zero already the zero value
// of its type.
func (s *sites) returned(fn *ast.FuncType, n *ast.ReturnStmt) {
	if fn.Results == nil || len(n.Results) == 0 {
		return
	}
	var types []string
	for _, field := range fn.Results.List {
		for range max(1, len(field.Names)) {
			types = append(types, s.text(field.Type))
		}
	}
	if len(types) != len(n.Results) {
		return // the results of one call, passed on
	}
	for i, value := range n.Results {
		if zero(value) {
			continue
		}
		var values []string
		for j, other := range n.Results {
			if values = append(values, s.text(other)); j == i {
				values[j] = "*new(" + types[i] + ")"
			}
		}
		with := "return " + strings.Join(values, ", ")
		s.add("zero value", n, with, "if mutationOn(%%) { "+with+" }; ", "")
	}
}

// zero says that a value looks like a zero value, or is a boolean constant,
// which is turned round anyway.
func zero(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "false" || e.Name == "true"
	case *ast.BasicLit:
		return e.Value == "0" || e.Value == `""`
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	}
	return false
}

func blank(e ast.Expr) bool {
	name, is := e.(*ast.Ident)
	return is && name.Name == "_"
}

// pure says that computing an expression twice is as good as once: it calls
// nothing but conversions, and methods of the standard library's values.
func pure(e ast.Expr) bool {
	is := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			is = false
		case *ast.UnaryExpr:
			is = is && n.Op != token.ARROW
		case *ast.CallExpr:
			name := ""
			switch fn := n.Fun.(type) {
			case *ast.Ident:
				name = fn.Name
			case *ast.SelectorExpr:
				name = fn.Sel.Name
			}
			is = is && slices.Contains(pureCalls, name)
		}
		return is
	})
	return is
}

var pureCalls = []string{"len", "cap", "min", "max", "int", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "byte",
	"float64", "Duration", "Sub", "Unix", "UnixMilli", "UnixNano", "Milliseconds", "Nanoseconds", "Seconds", "Len"}

// logs says that an expression is a call of a logger.
func (s *sites) logs(e ast.Expr) bool {
	call, is := e.(*ast.CallExpr)
	if !is {
		return false
	}
	method, is := call.Fun.(*ast.SelectorExpr)
	return is && strings.Contains(strings.ToLower(s.text(method.X)), "log") &&
		slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs"}, strings.TrimSuffix(method.Sel.Name, "Context"))
}

// boolean replaces a condition, or a part of one.
func (s *sites) boolean(kind string, n ast.Node, with string) {
	s.add(kind, n, with, "(mutationOn(%%) && ("+with+") || !mutationIs(%%) && (", "))")
}

// instead does another statement.
func (s *sites) instead(kind string, n ast.Node, with string) {
	s.add(kind, n, with, "if mutationOn(%%) { "+with+" } else { ", " }")
}

func (s *sites) remove(n ast.Node) {
	s.add("removed statement", n, "", "if !mutationOn(%%) { ", " }")
}

// operator is the text of a node with another operator at a place in it.
func (s *sites) operator(n ast.Node, at token.Pos, from, to token.Token) string {
	text, i := s.text(n), int(at-n.Pos())
	return text[:i] + to.String() + text[i+len(from.String()):]
}

func (s *sites) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s *sites) text(n ast.Node) string {
	return string(s.src[s.offset(n.Pos()):s.offset(n.End())])
}

// add notes one change, with the line it is in, or the first of its lines. What
// it writes must stay in one line, so that all others keep their numbers: where
// that cannot be, there is no mutant.
func (s *sites) add(kind string, n ast.Node, with, prefix, suffix string) {
	if strings.Contains(with, "\n") {
		if strings.Contains(with, "//") || strings.Contains(with, "func(") {
			return
		}
		prefix = strings.Join(strings.Fields(prefix), " ")
	}
	start, end := s.offset(n.Pos()), s.offset(n.End())
	first := strings.LastIndexByte(string(s.src[:start]), '\n') + 1
	last := len(s.src)
	if i := strings.IndexByte(string(s.src[end:]), '\n'); i >= 0 {
		last = end + i
	}
	m := mutant{
		File: s.file, Line: s.fset.Position(n.Pos()).Line, Func: s.fn, Kind: kind,
		Before: oneLine(string(s.src[first:last])),
		After:  oneLine(string(s.src[first:start]) + with + string(s.src[end:last])),
		start:  start, end: end, prefix: prefix, suffix: suffix,
	}
	if m.After == "" {
		m.After = "(nothing)"
	}
	s.found = append(s.found, m)
}

// oneLine joins what is written in several lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
