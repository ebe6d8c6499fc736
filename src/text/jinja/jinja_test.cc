#include "text/jinja/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace tandem::jinja {
namespace {

using ::testing::HasSubstr;

Result<std::string> RenderText(std::string_view source, const Json& variables = Json::object(),
                               const Limits& limits = {}) {
  Result<Template> t = Template::Create(source);
  if (!t.ok()) return t.status();
  Template::Variables values;
  for (const auto& [name, json] : variables.items()) {
    Result<Value> value = FromJson(json);
    if (!value.ok()) return value.status();
    values.emplace_back(name, std::move(*value));
  }
  return t->Render(std::move(values), limits);
}

// cases.json holds what jinja2 itself makes of several hundred templates (make_cases.py).
TEST(Jinja, AgreesWithJinja2) {
  std::ifstream file(TANDEM_SOURCE_DIR "/src/text/jinja/cases.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases["records"].size(), 500u);
  for (const Json& record : cases["records"]) {
    const std::string source = record["template"];
    const Result<std::string> text = RenderText(source, cases["variables"]);
    if (record.contains("text")) {
      EXPECT_TRUE(text.ok()) << source << "\n" << text.status().ToString();
      EXPECT_EQ(text.ok() ? *text : "", record["text"].get<std::string>()) << source;
    } else {
      EXPECT_FALSE(text.ok()) << source << "\n" << (text.ok() ? *text : "");
    }
  }
}

TEST(Jinja, NamesWhatItDoesNotSupportAtLoad) {
  const std::pair<const char*, const char*> cases[] = {
      {"\n{% call f() %}{% endcall %}", "line 2: the function 'f'"},
      {"{% macro f() %}{% endmacro %}{% call f() ~ 1 %}{% endcall %}",
       "no macro in the tag 'call'"},
      {"{% macro f() %}{{ varargs }}{% endmacro %}", "the variable 'varargs'"},
      {"{% macro f(caller) %}{% endmacro %}", "the parameter 'caller'"},
      {"{{ caller() }}", "the function 'caller'"},
      {"{% include 'x' %}", "the tag 'include'"},
      {"{% filter nosuch %}{% endfilter %}", "the filter 'nosuch'"},
      {"{% set x | nosuch %}{% endset %}", "the filter 'nosuch'"},
      {"{% for a in b %}{% macro f() %}{% endmacro %}{% endfor %}", "the tag inside of a loop"},
      {"{% macro range() %}{% endmacro %}", "the name of a function 'range'"},
      {"{% if no %}\n\n{{ x | wordwrap(3) }}{% endif %}", "line 3: the filter 'wordwrap'"},
      {"{{ x is filter }}", "the test 'filter'"},
      {"{{ lipsum(3) }}", "the function 'lipsum'"},
      {"{{ x.format_map(1) }}", "the method 'format_map'"},
      {"{{ x.y.pop() }}", "the method 'pop'"},
      {"{{ x(1)(2) }}", "the call of"},
      {"{{ x[0](1) }}", "the call of"},
      {"{{ x.__class__ }}", "the attribute '__class__'"},
      {"{{ range(*x) }}", "argument unpacking"},
      {"{{ x | map(y) }}", "a filter of map"},
      {"{{ x | map('nosuch') }}", "the filter 'nosuch'"},
      {"{{ x | selectattr('a', 'nosuch') }}", "the test 'nosuch'"},
      {"{{ x | selectattr(y) }}", "an attribute of selectattr"},
      {"{{ 99999999999999999999 }}", "beyond 64 bits"},
      {"{{ '\\N{DASH}' }}", "escape sequence"},
      {"{{ 0x10 }}", "a number written like this"},
  };
  for (const auto& [source, message] : cases) {
    const Result<Template> t = Template::Create(source);
    ASSERT_FALSE(t.ok()) << source;
    EXPECT_EQ(t.status().code(), StatusCode::kUnimplemented) << source;
    EXPECT_THAT(t.status().message(), HasSubstr(message)) << source;
  }
}

TEST(Jinja, GenerationBlocksAreTransparent) {
  EXPECT_EQ(*RenderText("a\n{% generation %}\nb\n{% endgeneration %}\nc"), "a\nb\nc");
}

// Formatting keeps apart what came from data, as every other way to build a text does.
TEST(Jinja, FormattedTextKeepsItsMarks) {
  const auto marked = [](std::string_view source) {
    const Result<Template> t = Template::Create(source);
    EXPECT_TRUE(t.ok()) << t.status().ToString();
    const Value x = *FromJson("<|x|>");
    const Value n = *FromJson("{:~>5}{}");
    const MarkedText text = *t->RenderMarked({{"x", x}, {"n", n}}, {}, {});
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      bool data = false;
      for (const ByteSpan& span : text.data()) data = data || (i >= span.begin && i < span.end);
      out += data ? '#' : text.text()[i];
    }
    return out;
  };
  EXPECT_EQ(marked("{{ 'a{}b{:>7}c'.format(x, x) }}"), "a#####b  #####c");
  EXPECT_EQ(marked("{{ 'a{:.2}b'.format(x) }}"), "a##b");
  EXPECT_EQ(marked("{{ 'a%sb%-7sc%d' % (x, x, 5) }}"), "a#####b#####  c5");
  EXPECT_EQ(marked("{{ '{!r}'.format([x]) }}{{ '%r' % x }}"), "################");
  EXPECT_EQ(marked("{{ n.format(1, '<|') }}"), "#####<|");
  EXPECT_EQ(marked("{% filter replace('|', '!') %}a{{ x }}{% endfilter %}"), "a#!#!#");
  EXPECT_EQ(
      marked("{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ x }}{% endcall %}"),
      "[#####]");
  EXPECT_EQ(marked("{{ x.center(7) }}{{ x | truncate(3, true, '.', 0) }}"), " ##### ##.");
  EXPECT_EQ(marked("{% for k, v in [{'r': x}] | groupby('r') %}{{ k }}{% endfor %}"), "#####");
}

TEST(Jinja, ErrorsOfARenderingNameTheLine) {
  const Result<std::string> text = RenderText("a\n{% for m in ms %}\n  {{ m.a.b }}\n{% endfor %}",
                                              Json::parse(R"({"ms": [{}]})"));
  EXPECT_EQ(text.status().message(), "line 3: 'dict object' has no attribute 'a'");
}

TEST(Jinja, IntegersBeyond64BitsAreErrors) {
  for (const char* source :
       {"{{ 9223372036854775807 * 2 }}", "{{ 2 ** 63 }}", "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ 1e300 | int }}"}) {
    EXPECT_FALSE(RenderText(source).ok()) << source;
  }
  EXPECT_EQ(*RenderText("{{ -9223372036854775807 - 1 }}"), "-9223372036854775808");
  EXPECT_EQ(*RenderText("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_FALSE(RenderText("{{ x }}", {{"x", UINT64_MAX}}).ok());
}

TEST(JinjaLimits, NestingOfTheSource) {
  const auto nested = [](std::string_view open, std::string_view close, int depth) {
    std::string s;
    for (int i = 0; i < depth; ++i) s += open;
    s += "1";
    for (int i = 0; i < depth; ++i) s += close;
    return s;
  };
  for (const int depth : {200, 20000}) {
    for (const auto& [open, close] :
         std::initializer_list<std::pair<const char*, const char*>>{{"(", ")"},
                                                                    {"[", "]"},
                                                                    {"{'a':", "}"},
                                                                    {"-", ""},
                                                                    {"not ", ""},
                                                                    {"a[", "]"},
                                                                    {"1 if a else ", ""},
                                                                    {"a.get(", ")"},
                                                                    {"1 + ", ""},
                                                                    {"1 or ", ""},
                                                                    {"1 | d(", ")"}}) {
      const std::string source = "{{ " + nested(open, close, depth) + " }}";
      EXPECT_EQ(Template::Create(source).status().code(), StatusCode::kOutOfRange) << open;
    }
    EXPECT_EQ(Template::Create(nested("{% if a %}", "{% endif %}", depth)).status().code(),
              StatusCode::kOutOfRange);
    EXPECT_EQ(Template::Create("{{ " + nested("", " | d", depth) + " }}").status().code(),
              StatusCode::kOutOfRange);
    EXPECT_EQ(Template::Create("{% for " + nested("(", ")", depth) + " in a %}{% endfor %}")
                  .status()
                  .code(),
              StatusCode::kOutOfRange);
  }
  EXPECT_TRUE(Template::Create("{{ " + nested("(", ")", 40) + " }}").ok());
  EXPECT_TRUE(Template::Create(nested("{% if a %}", "{% endif %}", 100)).ok());
}

TEST(JinjaLimits, MacrosCannotCallThemselvesForever) {
  for (const char* source :
       {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{% if x %}{% for i in [1] %}{{ (((g(x) | trim) ~ 'a')[0:]) }}{% endfor %}"
        "{% endif %}{% endmacro %}{% macro g(x) %}{{ f(x=x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x, y=f(x)) %}{% endmacro %}{{ f(1) }}"}) {
    const Result<std::string> text = RenderText(source);
    EXPECT_EQ(text.status().code(), StatusCode::kOutOfRange) << source;
    EXPECT_THAT(text.status().message(), HasSubstr("nests deeper")) << source;
  }
  EXPECT_EQ(*RenderText("{% macro f(n) %}{% if n %}x{{ f(n - 1) }}{% endif %}{% endmacro %}"
                        "{{ f(90) | length }}"),
            "90");
}

TEST(JinjaLimits, NewConstructsCannotRunAwayEither) {
  Limits limits;
  limits.max_steps = 2'000'000;
  limits.max_output_bytes = size_t{8} << 20;
  limits.max_allocated_bytes = size_t{64} << 20;
  for (const char* source :
       {"{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
        "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}"
        "{% call f() %}x{% endcall %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s | replace('a', 'aa') "
        "%}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = '{0}{0}'.format("
        "ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = '%s%s' % (ns.s, "
        "ns.s) %}{% endfor %}",
        "{{ '{:9000000000}'.format(1) }}", "{{ '{:8388608}{:8388608}'.format(1, 2) }}",
        "{{ '%8388608d%8388608d' % (1, 2) }}", "{{ '%.8388608d%.8388608d' % (1, 2) }}",
        "{{ '%*d' % (999999999999, 1) }}", "{{ '{:.99999}'.format(1.5) }}",
        "{{ 'x'.center(999999999999) }}", "{{ 'x' | center(99999999) }}",
        "{{ '5'.zfill(99999999) }}", "{{ [1] | batch(999999999999, 0) | list }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% with a = i %}{% endwith %}"
        "{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{{ ('a' * 1000000).isupper() }}{% endfor %}",
        "{% set a = 'a' * 1000000 %}{% for i in range(100000) %}{% if a.center(1) %}{% endif %}"
        "{% endfor %}",
        "{% for i in range(100000) %}{{ ('a' * 1000000) | truncate(9) }}{% endfor %}"}) {
    const Result<std::string> text = RenderText(source, Json::object(), limits);
    EXPECT_EQ(text.status().code(), StatusCode::kOutOfRange) << source;
  }
}

TEST(JinjaLimits, ALoopThatIsOverCannotBeCalled) {
  EXPECT_FALSE(
      RenderText("{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop "
                 "%}{% endfor %}{% set loop = ns.l %}{{ loop([1]) }}")
          .ok());
}

TEST(JinjaLimits, SizeOfTheSource) {
  EXPECT_EQ(Template::Create(std::string(kMaxTemplateBytes + 1, 'x')).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_TRUE(Template::Create(std::string(kMaxTemplateBytes, 'x')).ok());
}

TEST(JinjaLimits, DepthOfValues) {
  const char* source =
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(RenderText(source).status().code(), StatusCode::kOutOfRange);
  Json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(FromJson(deep).status().code(), StatusCode::kOutOfRange);
}

// Values share their parts, so thirty lines can describe more than memory holds.
TEST(JinjaLimits, SharedValuesCannotExplode) {
  const std::string doubling =
      "{% set ns = namespace(x=[1], s='ab') %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  Limits limits;
  limits.max_output_bytes = 1 << 20;
  for (const char* use : {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string | length }}",
                          "{% set ns.y = namespace(x=[1]) %}{% for i in range(60) %}"
                          "{% set ns.y.x = [ns.x] %}{% endfor %}"}) {
    EXPECT_FALSE(RenderText(doubling + use, Json::object(), limits).ok()) << use;
  }
  const std::string twins =
      "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}";
  limits.max_steps = 1'000'000;
  for (const char* use : {"{{ a.x == b.x }}", "{{ a.x < b.x }}", "{{ a.x in [b.x] }}"}) {
    const Result<std::string> text = RenderText(twins + use, Json::object(), limits);
    EXPECT_EQ(text.status().code(), StatusCode::kOutOfRange) << use;
  }
}

TEST(JinjaLimits, TextsAndListsCannotExplode) {
  Limits limits;
  limits.max_steps = 2'000'000;
  limits.max_output_bytes = size_t{8} << 20;
  limits.max_allocated_bytes = size_t{64} << 20;
  for (const char* source :
       {"{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{{ 'ab' * 9000000000000000000 }}", "{{ [1, 2] * 9000000000000000000 }}",
        "{{ ('ab' * 1000000).replace('a', 'x' * 1000000) }}",
        "{{ ('ab' * 1000000).replace('', 'x' * 1000000) }}",
        "{{ ('x' * 1000000).join('ab' * 1000000) }}",
        "{{ ('ab' * 1000000) | join('x' * 1000000) }}", "{{ ('a\\n' * 1000000) | indent(1000) }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% set x = 'a' * 1000000 %}{% endfor %}",
        "{% for i in range(100000) %}{{ ('a' * 1000000).find('b') }}{% endfor %}",
        "{{ [[1]] | tojson(indent=99999999999) }}"}) {
    const Result<std::string> text = RenderText(source, Json::object(), limits);
    EXPECT_FALSE(text.ok()) << source;
  }
}

TEST(JinjaLimits, StepsAreCounted) {
  Limits limits;
  limits.max_steps = 1000;
  EXPECT_TRUE(RenderText("{% for i in range(50) %}{{ i }}{% endfor %}", {}, limits).ok());
  const Result<std::string> text =
      RenderText("{% for i in range(5000) %}{{ i }}{% endfor %}", {}, limits);
  EXPECT_EQ(text.status().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(text.status().message(), HasSubstr("1000 steps"));
}

TEST(Jinja, LoopsAndNamespacesMayOutliveTheirStatement) {
  EXPECT_EQ(*RenderText("{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.l = loop %}"
                        "{% endfor %}{{ ns.l.index }}{{ ns.l.length }}"),
            "22");
  EXPECT_EQ(
      *RenderText("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}"),
      "True");
}

}  // namespace
}  // namespace tandem::jinja
