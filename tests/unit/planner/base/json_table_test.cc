// Tests of JSON tables: what they write, what they read, and every error message.
#include "planner/base/json_table.h"

#include <string>

#include <gtest/gtest.h>

namespace windlass {
namespace json_table_test {

enum class Colour { kRed, kGreen };

const char* to_string(Colour colour) { return colour == Colour::kRed ? "Red" : "Green"; }

constexpr auto json_values(JsonType<Colour>) { return std::array{Colour::kRed, Colour::kGreen}; }

constexpr JsonLimit kPositive{[](double value) { return value > 0; }, "greater than 0"};

struct Wheel {
  double size = 0;
  double wear = 1;
  bool operator==(const Wheel&) const = default;
};

constexpr auto json_fields(JsonType<Wheel>) {
  return json_object(field("size", &Wheel::size).within(kPositive), rare("wear", &Wheel::wear));
}

struct Origin {
  std::string country;
  std::int64_t year = 0;
  bool operator==(const Origin&) const = default;
};

constexpr auto json_fields(JsonType<Origin>) {
  return json_object(field("country", &Origin::country), field("year", &Origin::year, 0)).passing_over_unknown_keys();
}

struct Cart {
  std::string name;
  Colour colour = Colour::kRed;
  int seats = 2;
  double load = 0;
  double limit = 0;
  std::array<double, 2> at{};
  std::optional<int> rank;
  std::vector<Wheel> wheels;
  std::vector<Wheel> spares;
  Origin origin;
  Wheel front;
  bool sold = false;
  double price = 0;
  std::string note;
  bool operator==(const Cart&) const = default;
};

constexpr auto json_fields(JsonType<Cart>) {
  using T = Cart;
  const auto write_note = [](auto& json, const T& cart) { json["note"] = "<" + cart.note; };
  const auto read_note = [](JsonReader& reader, T& cart) { cart.note = reader.string("note").erase(0, 1); };
  return json_object(field("name", &T::name), field("colour", &T::colour), rare("seats", &T::seats, 1, 9).or_null(),
                     field("load", &T::load), added("limit", &T::limit), limit("load", &T::load, kPositive),
                     field("at", &T::at), field("rank", &T::rank, 0), field("wheels", &T::wheels), rare("spares", &T::spares),
                     field("origin", &T::origin), part(&T::front), added("sold", &T::sold),
                     when(&T::sold, field("price", &T::price)), hook(write_note, read_note))
      .checked_by([](const T& cart, const std::string& path) -> Result<void> {
        if (cart.wheels.size() != 3) return {};
        return Error{ErrorCode::kFailedPrecondition, path + ": three wheels"};
      });
}

namespace {

using Json = nlohmann::ordered_json;

Cart full_cart() {
  return {.name = "hay",
          .colour = Colour::kGreen,
          .seats = 4,
          .load = 3.5,
          .limit = 10,
          .at = {1, INFINITY},
          .rank = 7,
          .wheels = {{2, 1}, {2.5, 0.5}},
          .spares = {{1, 1}},
          .origin = {"NZ", 1999},
          .front = {9, 8},
          .sold = true,
          .price = 12.5,
          .note = "cheap"};
}

std::string written(const Cart& cart) {
  Json json = Json::object();
  write_fields(json, cart);
  return json.dump();
}

constexpr const char* kFull =
    R"({"name":"hay","colour":"Green","seats":4,"load":3.5,"limit":10.0,"at":[1.0,"Infinity"],"rank":7,)"
    R"("wheels":[{"size":2.0},{"size":2.5,"wear":0.5}],"spares":[{"size":1.0}],"origin":{"country":"NZ","year":1999},)"
    R"("size":9.0,"wear":8.0,"sold":true,"price":12.5,"note":"<cheap"})";
constexpr const char* kPlain =
    R"({"name":"","colour":"Red","load":1.0,"limit":0.0,"at":[0.0,0.0],"wheels":[],"origin":{"country":"","year":0},)"
    R"("size":1.0,"sold":false,"note":"<"})";

// The error of the plain cart after this merge patch; empty if there is none.
std::string mistake(const char* patch, const char* path = "cart") {
  auto value = nlohmann::json::parse(kPlain);
  value.update(nlohmann::json::parse(patch));
  const auto read = read_json<Cart>(value, path);
  return read.ok() ? "" : read.error().message;
}

// Given all fields set, and none; expects them in the table's order, without defaults and empty values.
TEST(JsonTable, WritesInOrder) {
  EXPECT_EQ(written(full_cart()), kFull);
  Cart plain;
  plain.load = plain.front.size = 1;
  EXPECT_EQ(written(plain), kPlain);
  nlohmann::json sorted;
  write_fields(sorted, full_cart());
  EXPECT_EQ(sorted, nlohmann::json::parse(kFull));
}

// Given what was written; expects it back. Given an older text without some fields, or with null where allowed; expects
// defaults.
TEST(JsonTable, ReadsWhatItWrote) {
  Cart cart = full_cart();
  cart.at = {1, 2};
  EXPECT_EQ(read_json<Cart>(nlohmann::json::parse(written(cart)), "").value(), cart);
  auto older = nlohmann::json::parse(kPlain);
  for (const char* key : {"limit", "sold"}) older.erase(key);
  older["seats"] = nullptr;
  older["origin"]["unknown"] = 1;
  Cart plain;
  plain.load = plain.front.size = 1;
  EXPECT_EQ(read_json<Cart>(older, "").value(), plain);
}

// Given one error each; expects its path, what was found and what is allowed. Given two errors; expects the first in the
// table's order.
TEST(JsonTable, NamesTheFirstMistake) {
  EXPECT_EQ(mistake("{}"), "");
  EXPECT_EQ(mistake(R"({"colour":"Blue"})"), "cart.colour: must be one of Red, Green (got \"Blue\")");
  EXPECT_EQ(mistake(R"({"seats":10})"), "cart.seats: must be an integer from 1 to 9 (got 10)");
  EXPECT_EQ(mistake(R"({"rank":-1})"), "cart.rank: must be an integer from 0 to 2147483647 (got -1)");
  EXPECT_EQ(mistake(R"({"rank":null})"), "cart.rank: must be an integer from 0 to 2147483647 (got null)");
  EXPECT_EQ(mistake(R"({"origin":{"country":"NZ","year":-1}})", ""),
            "origin.year: must be an integer from 0 to 9223372036854775807 (got -1)");
  EXPECT_EQ(mistake(R"({"origin":{}})"), "cart.origin.country: missing");
  EXPECT_EQ(mistake(R"({"load":0})"), "cart.load: must be greater than 0 (got 0.0)");
  EXPECT_EQ(mistake(R"({"load":0,"limit":true})"), "cart.limit: must be a number (got true)");
  EXPECT_EQ(mistake(R"({"load":0,"at":[1]})"), "cart.load: must be greater than 0 (got 0.0)");
  EXPECT_EQ(mistake(R"({"at":[1]})"), "cart.at: must be a list of 2 numbers (got [1])");
  EXPECT_EQ(mistake(R"({"at":[1,"x"]})"), "cart.at: must be a number (got \"x\")");
  EXPECT_EQ(mistake(R"({"wheels":{}})"), "cart.wheels: must be a list (got {})");
  EXPECT_EQ(mistake(R"({"wheels":[{"size":1},{"size":-1}]})"), "cart.wheels[1].size: must be greater than 0 (got -1.0)");
  EXPECT_EQ(mistake(R"({"wheels":[{"size":1,"tyre":0}]})"), "cart.wheels[0].tyre: unknown field, must be one of size, wear");
  EXPECT_EQ(mistake(R"({"sold":true})"), "cart.price: missing");
  EXPECT_EQ(mistake(R"({"wheels":[{"size":1},{"size":1},{"size":1}]})"), "cart: three wheels");
  EXPECT_EQ(read_json<Cart>(nlohmann::json(5), "cart").error().message, "cart: must be an object (got 5)");
}

// Given a field whose condition does not hold; expects it to be unknown.
TEST(JsonTable, KnowsConditionalFieldsOnlyIfTheConditionHolds) {
  EXPECT_EQ(
      mistake(R"({"price":1})"),
      "cart.price: unknown field, must be one of at, colour, limit, load, name, note, origin, rank, seats, size, sold, spares, "
      "wear, wheels");
}

}  // namespace
}  // namespace json_table_test
}  // namespace windlass
