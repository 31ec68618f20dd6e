// Tests of YAML tables: what they read, the notes on defaults, and every error message.
#include "planner/base/yaml_table.h"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace windlass::yaml {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

enum class Fuel { kCoal, kSteam };
constexpr std::array kFuels = {"coal", "steam"};

struct Rope {
  double metres = 0;
  int line = 0;
};

struct Brake {
  double force_n = 5;
};

struct Crew {
  int hands = 2;
};

struct Winch {
  std::string name;
  int turns = 3;
  std::optional<int> pawls;
  double load_g = 4000;
  double pause_s = 0.5;
  bool reversed = false;
  Fuel fuel = Fuel::kCoal;
  std::optional<Brake> brake;
  Crew crew;
  std::vector<Rope> ropes;
};

struct Ship {
  bool sails = false;
  double max_metres = 100;
};

auto winch_fields() {
  const auto by_steam = [](const Winch& winch) { return winch.fuel == Fuel::kSteam; };
  return map(text("name", &Winch::name, "a name").required(), whole("turns", &Winch::turns, 1, 9).noted(),
             whole("pawls", &Winch::pawls, 0, 4), number("loadKg", &Winch::load_g, {1, 50}, 1000).noted(),
             duration("pause", &Winch::pause_s, {0, 60}).noted(), flag("reversed", &Winch::reversed).noted("as it came"),
             choice("fuel", &Winch::fuel, kFuels).noted(),
             only("fuel: steam", by_steam, section("brake", &Winch::brake, map(number("force", &Brake::force_n, {0, 9})))),
             when(&Ship::sails, part(&Winch::crew, whole("hands", &Crew::hands, 1, 5))),
             list("ropes", &Winch::ropes, 2, "maps with metres", map(number("metres", &Rope::metres, {0, 500}).required())))
      .checked_by([](YamlReader& reader, const Winch& winch, const Ship& ship) {
        for (const Rope& rope : winch.ropes) {
          if (rope.metres > ship.max_metres) reader.wrong("ropes", "must be shorter ones (got one that is too long)");
        }
      });
}

struct Read {
  Winch winch;
  std::vector<std::string> notes;
  std::string mistake;
};

Read read(const std::string& yaml, Ship ship = {}) {
  struct File {
    Winch winch;
  };
  static const auto kTable = section("winch", &File::winch, winch_fields()).required("a map with name");
  Read read;
  File file;
  YamlMistake mistake;
  const YamlValue root = parse_yaml_tree(yaml, "w").value();
  YamlReader reader(root, "", mistake, &read.notes);
  kTable.read(reader, file, ship);
  reader.finish();
  read.winch = file.winch;
  if (!reader.ok()) read.mistake = mistake.error("w").message;
  return read;
}

// Given every field; expects their values in the units and types of the members, and no notes on defaults.
TEST(YamlTable, ReadsEveryField) {
  const Read made = read(R"(winch:
  name: capstan
  turns: 4
  pawls: 2
  loadKg: 1.5
  pause: 20ms
  reversed: true
  fuel: steam
  brake: {force: 7}
  hands: 3
  ropes:
  - {metres: 20}
  - {metres: 30}
)",
                         {.sails = true});
  EXPECT_EQ(made.mistake, "");
  EXPECT_THAT(made.notes, IsEmpty());
  EXPECT_EQ(made.winch.name, "capstan");
  EXPECT_EQ(made.winch.turns, 4);
  EXPECT_EQ(made.winch.pawls, 2);
  EXPECT_EQ(made.winch.load_g, 1500);
  EXPECT_EQ(made.winch.pause_s, 0.02);
  EXPECT_TRUE(made.winch.reversed);
  EXPECT_EQ(made.winch.fuel, Fuel::kSteam);
  ASSERT_TRUE(made.winch.brake.has_value());
  EXPECT_EQ(made.winch.brake->force_n, 7);
  EXPECT_EQ(made.winch.crew.hands, 3);
  ASSERT_EQ(made.winch.ropes.size(), 2u);
  EXPECT_EQ(made.winch.ropes[1].metres, 30);
  EXPECT_EQ(made.winch.ropes[1].line, 13);
}

// Given only required fields; expects the members to keep their defaults, and notes on those that are noted.
TEST(YamlTable, NotesDefaults) {
  const Read made = read("winch: {name: capstan}");
  EXPECT_EQ(made.mistake, "");
  EXPECT_THAT(made.notes, ElementsAre("winch.turns: 3", "winch.loadKg: 4", "winch.pause: 500ms", "winch.reversed: as it came",
                                      "winch.fuel: coal"));
  EXPECT_EQ(made.winch.turns, 3);
  EXPECT_EQ(made.winch.load_g, 4000);
  EXPECT_FALSE(made.winch.pawls.has_value());
  EXPECT_FALSE(made.winch.brake.has_value());
}

// Given one error at a time; expects its line, field and rule.
TEST(YamlTable, NamesMistakes) {
  const auto mistake = [](const std::string& fields) { return read("winch:\n  name: capstan\n  " + fields).mistake; };
  EXPECT_EQ(read("{}").mistake, "w:1: winch: missing, must be a map with name");
  EXPECT_EQ(read("winch: {}").mistake, "w:1: winch.name: missing, must be a name");
  EXPECT_EQ(mistake("turns: 0"), "w:3: winch.turns: must be a whole number from 1 to 9 (got '0')");
  EXPECT_EQ(mistake("loadKg: 51"), "w:3: winch.loadKg: must be a number from 1 to 50 (got '51')");
  EXPECT_EQ(mistake("fuel: oil"), "w:3: winch.fuel: must be one of coal, steam (got 'oil')");
  EXPECT_EQ(mistake("brake: {}"), "w:3: winch.brake: belongs to fuel: steam");
  EXPECT_EQ(mistake("hands: 2"),
            "w:3: winch.hands: unknown field, must be one of name, turns, pawls, loadKg, pause, reversed, fuel, "
            "brake, ropes");
  EXPECT_EQ(mistake("ropes: []"), "w:3: winch.ropes: must be a list of 1 to 2 maps with metres (got 0 items)");
  EXPECT_EQ(mistake("ropes: [{metres: 1}, {}]"), "w:3: winch.ropes[1].metres: missing, must be a number from 0 to 500");
  EXPECT_EQ(mistake("ropes: [{metres: 101}]"), "w:2: winch.ropes: must be shorter ones (got one that is too long)");
}

// Given objects with and without optional values; expects JSON that reads back as the same.
TEST(YamlTable, WritesFieldsAsJson) {
  const auto fields =
      map(text("name", &Winch::name, "a name").required(), whole("pawls", &Winch::pawls, 0, 4),
          section("gear", map(whole("turns", &Winch::turns, 1, 9).rare(), choice("fuel", &Winch::fuel, kFuels))),
          section("brake", &Winch::brake,
                  map(hook([](YamlReader&, Brake&) {}, [](nlohmann::json& out, const Brake& brake) { out = brake.force_n; }))),
          part(&Winch::crew, whole("hands", &Crew::hands, 1, 5)),
          list("ropes", &Winch::ropes, 2, "maps with metres", map(whole("metres", &Rope::metres, 0, 500).required())));
  const auto written = [&](const Winch& winch) {
    nlohmann::json json;
    fields.write(json, winch);
    return json.dump();
  };
  Winch winch;
  winch.name = "capstan";
  EXPECT_EQ(written(winch), R"({"gear":{"fuel":"coal"},"hands":2,"name":"capstan","ropes":[]})");
  winch.turns = 4;
  winch.pawls = 2;
  winch.brake = Brake{7};
  winch.ropes = {{20}, {30}};
  EXPECT_EQ(written(winch), R"({"brake":7.0,"gear":{"fuel":"coal","turns":4},"hands":2,"name":"capstan","pawls":2,)"
                            R"("ropes":[{"metres":20},{"metres":30}]})");
}

// Given an optional section whose defaults are noted; expects the notes of an empty section. Given one with its own words;
// expects those.
TEST(YamlTable, NotesDefaultsOfMissingSections) {
  std::vector<std::string> notes;
  YamlMistake mistake;
  Ship ship;
  Winch winch;
  const YamlValue root = parse_yaml_tree("{}", "w").value();
  YamlReader reader(root, "", mistake, &notes);
  const auto crew = map(whole("hands", &Crew::hands, 1, 5).noted());
  section("crew", &Winch::crew, crew).or_defaults().read(reader, winch, ship);
  section("brake", &Winch::brake, map(number("force", &Brake::force_n, {0, 9}).noted()))
      .noted("none")
      .read(reader, winch, ship);
  section("others", &Winch::crew, crew).read(reader, winch, ship);
  EXPECT_TRUE(reader.ok());
  EXPECT_THAT(notes, ElementsAre("crew.hands: 2", "brake: none"));
  EXPECT_FALSE(winch.brake.has_value());
}

}  // namespace
}  // namespace windlass::yaml
